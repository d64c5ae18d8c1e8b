import json
from pathlib import Path
from typing import Any

import pytest

from chairlift.core.errors import RecordError
from chairlift.lab.client.recorder import read_traces
from chairlift.records.checks import check_row, numbered
from chairlift.records.client import HealthSample, RequestTrace
from chairlift.records.rows import from_row, to_row
from chairlift.records.schema import RequestRecord
from tests.lab.runs.making import write_run
from tests.records.samples import request

TRACE = {"index": 1, "scheduled": 0, "warmup": False, "end": 5}


@pytest.mark.parametrize(
    "change",
    [
        {"end": "x"},
        {"end": None},
        {"end": 1.5},
        {"end": True},
        {"end": 10**30},
        {"warmup": "no"},
        {"output_tokens": "7"},
    ],
)
def test_a_value_of_another_kind_is_refused(change: dict[str, Any]) -> None:
    """With the field and the value."""
    check_row(RequestTrace, TRACE)
    with pytest.raises(RecordError, match=f"{next(iter(change))} of a RequestTrace is .*, which cannot be"):
        check_row(RequestTrace, TRACE | change)


def test_whole_numbers_are_numbers() -> None:
    """JSON writes 1.0 as 1 where a writer was careless; the other way round it is damage."""
    health = dict.fromkeys(("time", "interval", "sent", "send_lag_max", "in_flight", "chunks"), 1)

    check_row(HealthSample, health | {"loop_lags": (), "thread_cpu": 1, "process_cpu": 0.5, "pressure": None})
    with pytest.raises(RecordError, match="loop_lags of a HealthSample"):
        check_row(HealthSample, health | {"loop_lags": 3, "thread_cpu": 1, "process_cpu": 0.5, "pressure": None})


@pytest.mark.parametrize(
    "change", [{"finish_reason": "tired"}, {"gap_runs": 5}, {"gap_runs": [[1]]}, {"released": None}]
)
def test_an_engines_row_that_is_none_is_refused(change: dict[str, Any]) -> None:
    """Whatever is wrong with it, it is one kind of error."""
    with pytest.raises(RecordError, match="a RequestRecord"):
        from_row(RequestRecord, json.loads(json.dumps(to_row(request()))) | change)


def test_a_damaged_row_is_named_with_its_file(tmp_path: Path) -> None:
    """So that it can be found."""
    run = write_run(tmp_path / "run").folder
    lines = (run / "traces.jsonl").read_text().splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | {"end": "late"})
    (run / "traces.jsonl").write_text("\n".join(lines) + "\n")

    with pytest.raises(RecordError, match=r"traces\.jsonl is damaged: row 3: end of a RequestTrace is 'late'"):
        read_traces(run)
    assert list(numbered(Path("x"), [{"a": 1}], dict)) == [{"a": 1}]
