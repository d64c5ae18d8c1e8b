import json
from pathlib import Path

import pytest

from chairlift.cli.main import main
from tests.lab.report.making import engine_run, staggered
from tests.lab.runs.making import write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A short run."""
    return engine_run(tmp_path / "runs" / "1-few", "continuous", staggered(3))


def test_a_report_lies_in_the_runs_folder(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what it found, and where the page is."""
    assert main(["report", str(run)]) == 0

    told = capsys.readouterr().out
    assert told.startswith("3 requests, all answered: ")
    assert str(run / "report" / "report.html") in told
    assert (run / "report" / "slots.png").exists()


def test_a_report_as_json_names_its_files_and_counts_its_cells(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the part that the slot picture shows."""
    out = run.parent / "out"
    assert main(["report", str(run), "--json", "--out", str(out), "--from", "100ms", "--to", "400ms", "--dark"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["page"] == str(out / "report.html")
    assert (told["slots"][0]["from_s"], told["slots"][0]["to_s"]) == (0.1, 0.4)
    assert told["slots"][0]["tokens"]["continuous"]["decode"] > 0
    assert told["wrong"] is False


def test_runs_of_different_loads_are_exit_code_1(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report is there; no figure is comparable across them."""
    other = engine_run(run.parent / "2-other", "continuous", staggered(3), load="other")

    assert main(["report", str(run), str(other), "--out", str(run.parent / "out")]) == 1
    assert "! The runs had different loads" in capsys.readouterr().out


def test_a_run_that_is_not_there_is_exit_code_2(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And how to find one."""
    assert main(["report", "nobody", "--runs", str(run.parent)]) == 2
    assert "there is no one run 'nobody'" in capsys.readouterr().err


def test_records_that_are_not_whole_are_something_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A closed run says how many requests it had; figures of fewer are doubted, and the exit code says so."""
    run = write_run(tmp_path / "runs" / "1-cut").folder
    for path in run.glob("*.parquet"):
        path.unlink()
    lines = (run / "traces.jsonl").read_text().splitlines(keepends=True)
    (run / "traces.jsonl").write_text("".join(lines[:2]))

    assert main(["report", str(run), "--out", str(tmp_path / "out")]) == 1
    assert "its records are not whole: it closed with 4 requests, and 2 are there" in capsys.readouterr().out


def test_a_run_of_which_nothing_ended_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed before its first answer: of no requests all were answered, which would be no lie and no truth."""
    run = write_run(tmp_path / "runs" / "1-killed", status="running", results={}).folder
    for path in run.glob("*.parquet"):
        path.unlink()
    (run / "traces.jsonl").write_text("")

    assert main(["report", str(run), "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().out
    assert told.startswith("No request came to its end.")
    assert "it did not come to its end" in told
