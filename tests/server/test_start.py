from pathlib import Path

import pytest

from chairlift.core.config import SchedulerConfig
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.core import EngineCore
from chairlift.engine.loader import LoadedModel
from chairlift.engine.sampling import BatchSampler
from chairlift.runners.fake import FakeRunner
from chairlift.server.config import ServerConfig
from chairlift.server.service import Service
from chairlift.server.start import greeting, policy_line
from tests.engine.tiny import byte_tokenizer


def test_the_greeting_has_memory_policy_and_address() -> None:
    """What a person wants to know: version and file, where the memory goes, how it batches, where to ask, and what to
    be warned of: 32 sequences of 2,048 tokens are more than the runner's 64 blocks hold.
    """
    config, runner, tokenizer = SchedulerConfig(), FakeRunner(), byte_tokenizer()
    loaded = LoadedModel(
        "fake", Path("fake.gguf"), runner, BatchSampler(), tokenizer, None, config, "weights 1 MiB\nKV cache 2 MiB"
    )
    service = Service(
        AsyncEngine(EngineCore(config, runner, tokenizer)), model="fake", template=None, config=ServerConfig()
    )

    said = greeting(loaded, service, "http://127.0.0.1:8000", 1.25)

    assert said[0].endswith("fake.gguf")
    assert said[1:3] == ["weights 1 MiB", "KV cache 2 MiB"]
    assert said[3].startswith("policy continuous")
    assert said[4] == "serving fake at http://127.0.0.1:8000/v1 after 1.2 s; Ctrl-C drains and ends"
    assert said[5].startswith("warning: --max-num-seqs 32 and --max-model-len 2,048 together")
    assert "--chat-template" in said[6]


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        (SchedulerConfig(policy="static"), ["--batch-size 8", "KV reservation full", "release batch"]),
        (
            SchedulerConfig(policy="dynamic", preferred_batch_sizes=(2, 4)),
            ["--max-batch-size 8", "--max-queue-delay 50ms", "--preferred-batch-sizes 2,4"],
        ),
        (SchedulerConfig(target_itl=80_000_000), ["--max-num-seqs 32", "--target-itl 80ms", "release token"]),
    ],
)
def test_the_policys_own_settings_are_told_as_flags(config: SchedulerConfig, parts: list[str]) -> None:
    """So that they can be copied to a command line."""
    said = policy_line(config)

    assert said.startswith(f"policy {config.policy}: ")
    for part in parts:
        assert part in said
