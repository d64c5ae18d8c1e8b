"""The log's lines, with a clock that passes only when told."""

from __future__ import annotations

import logging

import pytest

from chairlift.core.config import SchedulerConfig
from chairlift.core.status import Health
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.core import EngineCore
from chairlift.engine.params import SamplingParams
from chairlift.runners.fake import FakeRunner
from chairlift.server.status import StatusLines
from tests.engine.tiny import byte_tokenizer

SECOND = 10**9


@pytest.fixture
def core() -> EngineCore:
    """An engine that is stepped by hand."""
    return EngineCore(SchedulerConfig(max_num_seqs=1), FakeRunner(vocabulary=128), byte_tokenizer())


@pytest.fixture
def engine(core: EngineCore, monkeypatch: pytest.MonkeyPatch) -> AsyncEngine:
    """It says that it is healthy, although its loop does not run."""
    made = AsyncEngine(core)
    monkeypatch.setattr(made, "health", core.health)
    return made


def submit(core: EngineCore, name: str) -> None:
    """Six prompt tokens, four of answer."""
    core.submit(list(b"prompt"), SamplingParams(max_tokens=4), request_id=name, sink=lambda _delta: None)


def test_a_line_an_interval_and_none_while_nothing_happens(
    core: EngineCore, engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is looked: at most one line in ten seconds, and silence when no step was made."""
    caplog.set_level(logging.INFO, "chairlift.server")
    lines = StatusLines(engine, 10 * SECOND)
    lines.look(0)
    submit(core, "a")
    submit(core, "b")
    for _ in range(2):
        core.step()

    for second in range(1, 30):
        lines.look(second * SECOND)

    assert caplog.messages[0] == (
        "continuous: 1 running, 1 waiting, KV 2%, 1 prompt tokens/s, 0.2 output tokens/s, useful 100%"
    )
    assert len(caplog.messages) == 2  # b waits still
    for _ in range(10):
        core.step()
    for second in range(30, 100):
        lines.look(second * SECOND)
    assert len(caplog.messages) == 3


def test_interval_0_means_no_lines(core: EngineCore, engine: AsyncEngine, caplog: pytest.LogCaptureFixture) -> None:
    """Status lines can be switched off."""
    caplog.set_level(logging.INFO, "chairlift.server")
    lines = StatusLines(engine, 0)
    submit(core, "a")
    core.step()
    for second in range(100):
        lines.look(second * SECOND)

    assert caplog.messages == []


def test_a_change_of_health_is_told_once_with_its_cause(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """T12: red for a hundred looks is one line; green again is another."""
    caplog.set_level(logging.INFO, "chairlift.server")
    lines = StatusLines(engine, 0)
    monkeypatch.setattr(engine, "health", lambda: Health(ok=False, cause="no block is ever free"))
    for second in range(100):
        lines.look(second * SECOND)
    monkeypatch.setattr(engine, "health", lambda: Health(ok=True))
    lines.look(200 * SECOND)

    assert caplog.messages == ["unhealthy: no block is ever free", "healthy again: work is scheduled."]
