import json
from pathlib import Path
from typing import Any

import pytest

from chairlift.core.errors import RecordError
from chairlift.lab.runs.compare import CAUTION, ResultDifference, compare
from tests.lab.runs.making import LOAD, write_run


def test_two_runs_of_one_load_differ_in_nothing_but_results(tmp_path: Path) -> None:
    """The salt is fresh for each and does not count; the difference is told, and called no more than that."""
    found = compare(write_run(tmp_path / "a"), write_run(tmp_path / "b", delay=30))
    results = {one.what: one for one in found.results}

    assert found.load.same
    assert (found.parameters, found.surroundings) == ((), ())
    assert results["ttft_from_schedule mean"].change == pytest.approx(1)
    assert results["time_between_tokens mean"].change == 0
    assert results["answered"].change == 0
    assert found.comparable
    assert found.notes == (CAUTION,)


def test_different_loads_are_said_first(tmp_path: Path) -> None:
    """What differs in them, and that results cannot be compared; a name alone is no difference."""
    before = write_run(tmp_path / "a")
    renamed = write_run(tmp_path / "b", LOAD.replace("even", "calm"))
    faster = write_run(tmp_path / "c", LOAD.replace("rate=10", "rate=20"))

    assert compare(before, renamed).load.same
    found = compare(before, faster)
    assert [str(one) for one in found.load.settings] == ["arrivals.rate: 10 -> 20"]
    assert found.notes[0].startswith("the loads differ")
    assert not found.comparable


def test_parameters_and_surroundings_are_apart(tmp_path: Path) -> None:
    """Target and settings are what somebody chose; versions and machine are what happened to be there."""
    before = write_run(tmp_path / "a")
    changed = write_run(
        tmp_path / "b",
        settings={"salt": "", "keep_text": True},
        versions={"numpy": "3"},
        machine={"cpus": 4},
        git={"commit": "f" * 40},
        chairlift="1",
    )
    found = compare(before, changed)

    assert [one.what for one in found.parameters] == ["settings.keep_text"]
    assert [one.what for one in found.surroundings] == ["chairlift", "versions.numpy", "machine.cpus", "git.commit"]


def test_what_makes_a_run_doubtful_is_told(tmp_path: Path) -> None:
    """Never closed, stopped, a client at its limit, not stationary."""
    results = {
        "stopped": True,
        "client": {"bottleneck": True},
        "summary": {"steady": {"stationary": False}},
    }
    found = compare(write_run(tmp_path / "a", status="running"), write_run(tmp_path / "b", results=results))

    assert [note.partition(": ")[0] for note in found.notes[:-1]] == [
        "a is incomplete",
        "b is incomplete",
        "in b the client was the bottleneck",
        "b was not stationary",
    ]
    assert not found.comparable


def test_a_run_without_a_load_cannot_be_compared(tmp_path: Path) -> None:
    """Such as an engine's own record."""
    with pytest.raises(RecordError, match="b cannot be compared: the record of a load has no"):
        compare(write_run(tmp_path / "a"), write_run(tmp_path / "b", load={}))


def test_a_change_from_nothing_is_none() -> None:
    """No division by zero, no percentage of what was not there."""
    assert ResultDifference("x", "s", 0, 1).change is None
    assert ResultDifference("x", "s", None, 1).change is None
    assert ResultDifference("x", "s", 1, None).change is None
    assert ResultDifference("x", "s", 2, 1).change == -0.5


def test_figures_that_neither_run_has_are_left_out(tmp_path: Path) -> None:
    """Without a calibration there is no saturation, and no line for it."""
    used = {"summary": {}, "usage": {"busy": 0.5, "saturation": None}}
    found = compare(write_run(tmp_path / "a", results=used), write_run(tmp_path / "b"))

    shares = [(one.what, one.before, one.after) for one in found.results if one.unit == "share"]
    assert shares == [("busy", 0.5, None)]


def test_it_is_plain_json(tmp_path: Path) -> None:
    """With the change of each figure."""
    told = compare(write_run(tmp_path / "a"), write_run(tmp_path / "b", delay=30)).to_json()

    assert json.loads(json.dumps(told))["comparable"] is True
    assert told["results"][0] == {"what": "scheduled", "unit": "requests", "before": 4, "after": 4, "change": 0}


def test_a_percentile_of_too_few_values_is_not_compared(tmp_path: Path) -> None:
    """Of four values the p99 is the maximum in other words."""
    results = {one.what for one in compare(write_run(tmp_path / "a"), write_run(tmp_path / "b", delay=30)).results}

    assert "ttft_from_schedule p50" in results
    assert "ttft_from_schedule p99" not in results


@pytest.mark.parametrize("results", [{"summary": 3}, {"summary": {"metrics": 3, "goodput": {}}}, {"client": []}])
def test_results_of_another_shape_are_none(results: dict[str, Any], tmp_path: Path) -> None:
    """Whatever a manifest holds, a comparison shows what it can."""
    found = compare(write_run(tmp_path / "a"), write_run(tmp_path / "b", results=results))

    assert all(one.after is None for one in found.results)


def test_a_load_of_another_shape_is_refused(tmp_path: Path) -> None:
    """With the part that is none."""
    broken = {**write_run(tmp_path / "a").manifest.load, "description": None}

    with pytest.raises(RecordError, match="description in the record of a load is None; it must be an object"):
        compare(write_run(tmp_path / "b"), write_run(tmp_path / "c", load=broken))
