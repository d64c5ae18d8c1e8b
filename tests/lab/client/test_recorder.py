import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from chairlift.core.errors import RecordError
from chairlift.lab.client.recorder import ClientRecorder, read_health, read_samples, read_traces
from chairlift.records.client import (
    Chunks,
    ErrorClass,
    HealthSample,
    Observation,
    RequestTrace,
    ServerSample,
    TokenSource,
)
from tests.lab.client.test_rows import health, samples, traces

CHUNKS = Chunks([(3, 1, TokenSource.TOKEN_IDS), (4, None, TokenSource.UNKNOWN)])
TRACE = RequestTrace(7, 1, warmup=False, end=5, sent=2, chunks=CHUNKS, error=ErrorClass.CUT, token_ids=(1, 2))
HEALTH = HealthSample(10, 10, (0, 1), 1, 2, 3, 4, 0.5, 0.6, None)
SAMPLE = ServerSample(10, 1, running=2.0, series={'a{b="c"}': 1.0})


def test_lines_are_there_before_the_run_is_over(tmp_path: Path) -> None:
    """A reader beside the run sees each request as it ends."""
    recorder = ClientRecorder(tmp_path / "run")
    recorder.write(TRACE)

    assert read_traces(tmp_path / "run") == [TRACE]
    recorder.close(parquet=False)


def test_a_closed_run_has_columns(tmp_path: Path) -> None:
    """Chunks in a table of their own, joined by index."""
    with ClientRecorder(tmp_path) as recorder:
        recorder.write(TRACE)
        recorder.write(HEALTH)
        recorder.write(SAMPLE)

    assert parquet.read_table(tmp_path / "chunks.parquet").to_pylist() == [
        {"index": 7, "time": 3, "tokens": 1, "source": "ids"},
        {"index": 7, "time": 4, "tokens": None, "source": "unknown"},
    ]
    [row] = parquet.read_table(tmp_path / "traces.parquet").to_pylist()
    assert (row["index"], row["sent"], row["first_byte"], row["error"]) == (7, 2, None, "cut")


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(traces.filter(lambda one: one.index < 2**62), max_size=4, unique_by=lambda one: one.index),
    st.lists(health, max_size=3),
    st.lists(samples, max_size=3),
)
def test_lines_and_columns_say_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    some: list[RequestTrace],
    health: list[HealthSample],
    samples: list[ServerSample],
) -> None:
    """Read from either, the observations are those that were written."""
    folder = tmp_path_factory.mktemp("run")
    observations: list[Observation] = [*some, *health, *samples]
    with ClientRecorder(folder) as recorder:
        for observation in observations:
            recorder.write(observation)

    for _ in range(2):
        assert read_traces(folder) == some
        assert read_health(folder) == health
        assert read_samples(folder) == samples
        for lines in folder.glob("*.jsonl"):
            lines.unlink()


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    """Records are not written over."""
    ClientRecorder(tmp_path).close(parquet=False)

    with pytest.raises(RecordError, match="holds a client's records already"):
        ClientRecorder(tmp_path)


def test_what_comes_after_the_end_is_refused(tmp_path: Path) -> None:
    """And closing again does nothing."""
    recorder = ClientRecorder(tmp_path)
    recorder.close(parquet=False)
    recorder.close()

    with pytest.raises(RecordError, match="came after its end"):
        recorder.write(TRACE)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file stands in its place."""
    (tmp_path / "run").write_text("")

    with pytest.raises(RecordError, match="cannot be written"):
        ClientRecorder(tmp_path / "run")


def test_a_folder_without_records_is_named(tmp_path: Path) -> None:
    """Neither lines nor columns."""
    with pytest.raises(RecordError, match="cannot be read"):
        read_traces(tmp_path)


KILLED = """
import os, signal, sys
from pathlib import Path
from chairlift.lab.client.recorder import ClientRecorder
from chairlift.records.client import RequestTrace
recorder = ClientRecorder(Path(sys.argv[1]))
for index in range(100):
    recorder.write(RequestTrace(index, 0, warmup=False, end=1))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_leaves_what_has_ended(tmp_path: Path) -> None:
    """SIGKILL, without any farewell."""
    result = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)

    assert result.returncode == -signal.SIGKILL
    assert [trace.index for trace in read_traces(tmp_path)] == list(range(100))


def test_half_a_last_line_is_passed_over(tmp_path: Path) -> None:
    """The process died while it wrote."""
    recorder = ClientRecorder(tmp_path)
    recorder.write(TRACE)
    recorder.write(TRACE)
    recorder.close(parquet=False)
    lines = tmp_path / "traces.jsonl"
    os.truncate(lines, lines.stat().st_size - 10)

    assert read_traces(tmp_path) == [TRACE]
