"""Subjects over a fake runner: a model that is loaded in no time."""

from pathlib import Path
from typing import Any

from chairlift.engine.config import EngineConfig
from chairlift.engine.loader import LoadedModel
from chairlift.engine.sampling import BatchSampler
from chairlift.lab.subjects import ModelSubject
from chairlift.runners.fake import FakeRunner
from tests.engine.tiny import byte_tokenizer

BLOCK = 16


class Loader:
    """Loads a model without a device, and counts how often.

    Args:
        num_blocks: of the pool, where the settings do not say.
        longest_context: of the model.
        runner: makes the runner.
    """

    def __init__(
        self, num_blocks: int = 256, longest_context: int = 2048, runner: type[FakeRunner] = FakeRunner
    ) -> None:
        self.loads: list[EngineConfig] = []
        self.runners: list[FakeRunner] = []
        self._num_blocks = num_blocks
        self._longest = longest_context
        self._runner = runner

    def __call__(self, config: EngineConfig) -> LoadedModel:
        self.loads.append(config)
        runner = self._runner(
            vocabulary=128, num_blocks=config.runner.num_kv_blocks or self._num_blocks, block_size=BLOCK
        )
        self.runners.append(runner)
        return LoadedModel(
            name="fake",
            path=Path("fake"),
            runner=runner,
            sampler=BatchSampler(),
            tokenizer=byte_tokenizer(),
            chat_template=None,
            scheduler=config.fitted(self._longest),
            memory="",
        )


def fake_subject(loader: Loader | None = None, **settings: Any) -> ModelSubject:
    """A model over a fake runner."""
    return ModelSubject("fake", {"max_model_len": 512, **settings}, load=loader or Loader())
