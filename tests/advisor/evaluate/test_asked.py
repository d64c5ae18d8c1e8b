import dataclasses
from pathlib import Path
from typing import Any

import pytest

from chairlift.advisor.evaluate.asked import Answers, load_of_run, load_of_trace
from chairlift.core.errors import ConfigError
from chairlift.lab.loads.arrivals import TraceReplay
from chairlift.lab.loads.describe import describe
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.request import At
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.runs.bench import ENGINE, Bench
from chairlift.lab.targets.simulated import SimulatedTarget
from chairlift.records.manifest import Manifest

TRACE = Path(__file__).parent.parent / "choose" / "data" / "azure_code.csv"


def test_three_answers_are_a_load() -> None:
    """Independent users, lengths about the mean that was said; all alike where the spread is zero."""
    said = Answers(prompt=500, output=200, rate=5)
    online = describe(Schedule(said.load()))
    even = describe(Schedule(Answers(prompt=500, output=200, rate=0, prompt_cv=0, output_cv=0, count=7).load()))

    assert online.requests == 400
    assert online.output.mean == pytest.approx(200, rel=0.15)
    assert online.rate == pytest.approx(5, rel=0.15)
    assert online.output.cv2 == pytest.approx(1, rel=0.5)
    assert (even.requests, even.output.cv2, even.rate) == (7, 0, None)
    assert "5 requests/s" in str(said)
    assert "--output-cv" in str(said)


@pytest.mark.parametrize("wrong", [{"prompt": 0}, {"rate": -1.0}, {"output_cv": -0.1}])
def test_answers_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    """With the flag."""
    said = dataclasses.replace(Answers(prompt=1, output=1, rate=1), **wrong)
    with pytest.raises(ConfigError, match=f"--{next(iter(wrong)).replace('_', '-')} is"):
        said.load()


def test_a_trace_is_a_load_of_its_rows() -> None:
    """All of them."""
    assert describe(Schedule(load_of_trace(TRACE))).requests == 120


async def test_a_run_that_was_kept_is_a_load(tmp_path: Path) -> None:
    """The client's record says which; an engine's record alone is replayed as it came."""
    pairs = "arrivals=poisson arrivals.rate=9 prompt=40 output=uniform output.min=2 output.max=9 count=8"
    load = load_from_pairs(pairs.split())
    target = SimulatedTarget.load("h100-sxm/llama-3.1-8b")
    await Bench(target, Schedule(load), tmp_path / "run").run()

    assert load_of_run(tmp_path / "run", tmp_path) == load
    engine = tmp_path / "run" / ENGINE
    dataclasses.replace(Manifest.read(engine), load={}).write(engine)  # as a server leaves it, which knows of no load
    replayed = load_of_run(engine, tmp_path)
    assert isinstance(replayed.arrivals, TraceReplay)
    before, after = list(Schedule(load)), list(Schedule(replayed))
    assert [(one.prompt_tokens, one.output_tokens) for one in after] == [
        (one.prompt_tokens, one.output_tokens) for one in before
    ]
    for one, other in zip(before, after, strict=True):
        assert isinstance(one.start, At)
        assert isinstance(other.start, At)
        assert other.start.due == pytest.approx(one.start.due, abs=1000)


async def test_a_run_whose_trace_is_gone_is_replayed_from_its_record(tmp_path: Path) -> None:
    """What came, when it was due."""
    trace = tmp_path / "own.csv"
    trace.write_text("time_s,prompt_tokens,output_tokens\n0,30,4\n1,31,5\n2.5,32,6\n")
    target = SimulatedTarget.load("h100-sxm/llama-3.1-8b")
    await Bench(target, Schedule(load_of_trace(trace)), tmp_path / "run").run()
    assert load_of_run(tmp_path / "run", tmp_path) == load_of_trace(trace)
    trace.unlink()

    requests = list(Schedule(load_of_run(tmp_path / "run", tmp_path)))
    assert [one.prompt_tokens for one in requests] == [30, 31, 32]
    assert Manifest.read(tmp_path / "run").client_schema is not None
