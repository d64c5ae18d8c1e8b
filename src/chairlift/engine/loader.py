"""From a model's name to an engine that is ready: files, tokenizer, chat template, device, memory, in this order.

Whatever will not do is refused before the device is touched, where it can be known.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ModelError
from chairlift.engine.collector import calm_collector
from chairlift.engine.config import EngineConfig
from chairlift.engine.hub import locate
from chairlift.engine.sampling import BatchSampler
from chairlift.runners.base import ModelRunner
from chairlift.text.chat import ChatTemplate
from chairlift.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What an EngineCore is made of."""

    name: str
    """As requests may call it: the file's or folder's name, or the name on the hub."""
    path: Path
    runner: ModelRunner
    sampler: BatchSampler
    """The one the runner calls."""
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    """None where the model has none and none was given."""
    scheduler: SchedulerConfig
    """With max_model_len fitted to the model."""
    memory: str
    """Where the memory goes, in lines for people."""
    record: Path | None = None
    """Where the run is kept; see EngineConfig.record."""


def load_model(config: EngineConfig) -> LoadedModel:
    """Load a model onto the device.

    Raises:
        ModelError: the model is nowhere, cannot be run here, is damaged, or has no usable tokenizer.
        ConfigError: settings and model do not go together.
        OutOfDeviceMemory: weights, activations and KV pool do not fit.
    """
    # Imported here: everything else in the engine works without a device.
    from chairlift.runners.openvino.formats import open_checkpoint  # noqa: PLC0415
    from chairlift.runners.openvino.runner import OpenVINORunner  # noqa: PLC0415
    from chairlift.runners.openvino.settings import StepLimits  # noqa: PLC0415

    path = locate(config.model, config.revision)
    checkpoint = open_checkpoint(path)
    source = checkpoint.tokenizer
    if isinstance(source, Path):
        tokenizer = Tokenizer.from_directory(source)
        template = ChatTemplate.from_directory(source, tokenizer) if config.chat_template is None else None
    else:
        tokenizer = Tokenizer.from_gguf(source)
        template = ChatTemplate.from_gguf(source, tokenizer) if config.chat_template is None else None
    if config.chat_template is not None:
        template = ChatTemplate.from_file(config.chat_template, tokenizer)
    if tokenizer.vocab_size > checkpoint.vocab_size:
        raise ModelError(
            f"{path} has a tokenizer of {tokenizer.vocab_size:,} tokens and weights for {checkpoint.vocab_size:,}: "
            "they do not belong together. Fetch the model again."
        )
    scheduler = config.fitted(checkpoint.architecture.longest_context)
    sampler = BatchSampler()
    runner = OpenVINORunner(checkpoint, StepLimits.of(scheduler), sampler, config.runner, sampler.seeded)
    calm_collector()
    return LoadedModel(
        name=path.stem if path.is_file() else _folder_name(config.model, path),
        path=path,
        runner=runner,
        sampler=sampler,
        tokenizer=tokenizer,
        chat_template=template,
        scheduler=scheduler,
        memory=str(runner.memory),
        record=config.record,
    )


def _folder_name(model: str, path: Path) -> str:
    """A name on the hub is kept; the folder it lies in is named after a commit."""
    return path.name if Path(model).expanduser().exists() else model
