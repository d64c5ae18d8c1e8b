import sys
from pathlib import Path

import pytest

from benchmarks._pipe import EngineProcess

ENGINE = """
from benchmarks._pipe import serve
def run(load):
    if load == "bad": raise SystemExit(3)
    return {"wall": 2.0, "load": load}
serve({"engine": "fake"}, run)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where the engine's standard error goes."""
    return tmp_path / "log"


def test_an_engine_says_what_it_is_and_runs_what_it_is_told(log: Path) -> None:
    """Loads by name, in order, for as long as somebody asks."""
    with EngineProcess("fake", [sys.executable, "-c", ENGINE], log) as engine:
        assert engine.about == {"engine": "fake"}
        assert [engine.run(load).result["load"] for load in ("W1", "W2")] == ["W1", "W2"]
        assert engine.run("W1").wall == 2.0
        assert engine.peak_memory() > 1 << 20


def test_what_a_library_prints_later_does_not_disturb(log: Path) -> None:
    """Standard output belongs to the answers; whatever else goes there while a load runs lands in the log."""
    code = ENGINE.replace("    if load", '    print("noise", flush=True)\n    if load')
    with EngineProcess("fake", [sys.executable, "-c", code], log) as engine:
        assert engine.run("W1").result["load"] == "W1"
    assert log.read_text() == "noise\n"


def test_an_engine_that_ends_is_named_with_its_log(log: Path) -> None:
    """No endless wait for an answer that will not come."""
    with (
        EngineProcess("fake", [sys.executable, "-c", ENGINE], log) as engine,
        pytest.raises(RuntimeError, match=f"fake ended with status 3; its log is {log}"),
    ):
        engine.run("bad")
