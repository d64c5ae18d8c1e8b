import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.core.errors import RecordError
from chairlift.records.reader import Run
from chairlift.records.schema import BatchRecord, DecisionRecord, Record, RequestRecord, ShareRecord, StepRecord
from chairlift.records.writer import RunWriter, write_columns
from tests.records.samples import manifest, records, request


def feed(writer: RunWriter, record: Record) -> None:
    """Show a record as an engine would."""
    match record:
        case StepRecord():
            writer.on_step(record)
        case ShareRecord():
            writer.on_share(record)
        case RequestRecord():
            writer.on_request(record)
        case DecisionRecord():
            writer.on_decision(record)
        case BatchRecord():
            writer.on_batch(record)


def everything(run: Run) -> list[Record]:
    """All records of a run, kind by kind."""
    return [*run.steps(), *(run.shares() or ()), *run.requests(), *run.decisions(), *run.batches()]


def by_kind(several: list[Record]) -> list[Record]:
    """In the order in which everything() reads."""
    kinds: list[type[Record]] = [StepRecord, ShareRecord, RequestRecord, DecisionRecord, BatchRecord]
    return [record for kind in kinds for record in several if isinstance(record, kind)]


@settings(max_examples=25)  # ten files each time
@given(st.lists(records, max_size=12))
def test_what_was_shown_is_read_back(tmp_path_factory: pytest.TempPathFactory, shown: list[Record]) -> None:
    """From the lines and from the columns alike, in order."""
    folder = tmp_path_factory.mktemp("run") / "r"
    with RunWriter(folder, manifest()) as writer:
        for record in shown:
            feed(writer, record)

    run = Run(folder)

    assert run.complete
    assert everything(run) == by_kind(shown)
    for path in folder.glob("*.jsonl"):
        path.unlink()
    assert everything(run) == by_kind(shown)


@settings(max_examples=25)
@given(st.lists(records, max_size=6))
def test_what_was_shown_is_readable_before_the_end(
    tmp_path_factory: pytest.TempPathFactory, shown: list[Record]
) -> None:
    """After any step, request or batch everything up to it is in the system's hands, though nothing was closed."""
    folder = tmp_path_factory.mktemp("run") / "r"
    writer = RunWriter(folder, manifest())
    for record in shown:
        feed(writer, record)
    writer.on_request(request())

    run = Run(folder)

    assert not run.complete
    assert everything(run) == by_kind([*shown, request()])
    assert run.table("requests").num_rows == len(run.requests())
    writer.close()


_VICTIM = """
import sys
from pathlib import Path
from chairlift.records.writer import RunWriter
from tests.records.samples import manifest, request
writer = RunWriter(Path(sys.argv[1]), manifest())
while True:
    for _ in range(50):
        writer.on_request(request())
    print("ready", flush=True)
"""


def test_a_run_that_is_killed_stays_readable(tmp_path: Path) -> None:
    """Kill -9 in the middle of writing: every whole line is there, and the run is not complete."""
    victim = subprocess.Popen([sys.executable, "-c", _VICTIM, str(tmp_path / "r")], stdout=subprocess.PIPE)
    assert victim.stdout is not None
    victim.stdout.readline()
    os.kill(victim.pid, signal.SIGKILL)
    victim.stdout.close()
    victim.wait()

    run = Run(tmp_path / "r")

    assert not run.complete
    assert len(run.requests()) >= 50
    assert set(run.requests()) == {request()}


def test_results_and_load_come_with_the_end(tmp_path: Path) -> None:
    """The manifest says complete last, with what is only known then; closing again changes nothing."""
    writer = RunWriter(tmp_path / "r", manifest(load={"name": "planned"}))
    assert Run(tmp_path / "r").manifest.status == "running"

    writer.close(results={"tokens": 5}, load={"name": "sent"})
    writer.close(results={"tokens": 6})

    ended = Run(tmp_path / "r").manifest
    assert (ended.status, ended.results, ended.load) == ("complete", {"tokens": 5}, {"name": "sent"})


def test_json_alone_is_a_run_too(tmp_path: Path) -> None:
    """Without Parquet the tables are made from the lines."""
    with RunWriter(tmp_path / "r", manifest(), parquet=False) as writer:
        writer.on_request(request())

    assert not list((tmp_path / "r").glob("*.parquet"))
    assert Run(tmp_path / "r").table("requests").num_rows == 1


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    """A folder that holds one is refused."""
    RunWriter(tmp_path / "r", manifest()).close()

    with pytest.raises(RecordError, match="holds a run already"):
        RunWriter(tmp_path / "r", manifest())


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file in the way is an error with its path."""
    (tmp_path / "file").touch()

    with pytest.raises(RecordError, match="cannot be written"):
        RunWriter(tmp_path / "file" / "r", manifest())


def test_nothing_is_taken_after_the_end(tmp_path: Path) -> None:
    """A record that comes late is not lost in silence."""
    writer = RunWriter(tmp_path / "r", manifest())
    writer.close()

    with pytest.raises(RecordError, match="came after its end"):
        writer.on_request(request())


def test_columns_are_made_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run is turned into columns a part at a time; nothing is lost at the seams."""
    monkeypatch.setattr("chairlift.records.writer._CHUNK", 4)
    with RunWriter(tmp_path / "r", manifest()) as writer:
        for number in range(9):
            writer.on_request(request(arrival=number))

    arrivals = Run(tmp_path / "r").table("requests").column("arrival").to_pylist()

    assert arrivals == [number * 1_000_000_000 for number in range(9)]


def test_damaged_lines_are_named(tmp_path: Path) -> None:
    """A line in the middle that is no JSON is damage, not an unfinished end."""
    folder = tmp_path / "r"
    with RunWriter(folder, manifest(), parquet=False) as writer:
        writer.on_request(request())
    good = (folder / "requests.jsonl").read_text()
    (folder / "requests.jsonl").write_text('{"torn\n' + good)

    with pytest.raises(RecordError, match=r"requests\.jsonl is damaged"):
        Run(folder).requests()
    with pytest.raises(RecordError, match=r"requests\.jsonl is damaged"):
        write_columns(folder, "requests")


@pytest.mark.parametrize("text", ["[]\n", json.dumps(7) + "\n"])
def test_a_line_that_is_no_record_is_named(text: str, tmp_path: Path) -> None:
    """With its number."""
    with RunWriter(tmp_path / "r", manifest(), parquet=False):
        pass
    (tmp_path / "r" / "steps.jsonl").write_text(text)

    with pytest.raises(RecordError, match=r"line 1 of .*steps\.jsonl is no JSON object"):
        Run(tmp_path / "r").steps()


def test_missing_files_are_named(tmp_path: Path) -> None:
    """A run whose files were taken away cannot be read in silence."""
    with RunWriter(tmp_path / "r", manifest()):
        pass
    for path in (tmp_path / "r").glob("steps.*"):
        path.unlink()

    with pytest.raises(RecordError, match=r"steps\.\w+ cannot be read"):
        Run(tmp_path / "r").steps()
