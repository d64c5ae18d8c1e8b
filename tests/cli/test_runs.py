import json
from pathlib import Path

import pytest

from chairlift.cli.main import main
from tests.lab.runs.making import LOAD, write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs of one load, the second slower, and one of another."""
    write_run(tmp_path / "1-even")
    write_run(tmp_path / "2-even", delay=30)
    write_run(tmp_path / "3-fast", LOAD.replace("even", "fast").replace("rate=10", "rate=20"))
    return tmp_path


def test_runs_are_listed_with_their_main_figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line each, the oldest first."""
    assert main(["runs", "--runs", str(folder)]) == 0

    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["run", "target", "status", "answered"]
    assert [line.split()[0] for line in lines] == ["1-even", "2-even", "3-fast"]
    assert all("4/4" in line and "0.0" in line for line in lines)


def test_filters_narrow_the_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several hold together; nothing found is no error."""
    assert main(["runs", "--runs", str(folder), "--filter", "load=even", "ttft_from_schedule.p50>0.05"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["2-even"]

    assert main(["runs", "--runs", str(folder), "--filter", "load=none"]) == 0
    assert "no such runs" in capsys.readouterr().out


def test_runs_as_json_have_every_fact(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By dotted key, with the definitions on demand."""
    assert main(["runs", "--runs", str(folder), "--json", "--definitions"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert [one["load"] for one in told["runs"]] == ["even", "even", "fast"]
    assert "goodput" in told["definitions"]


def test_a_wrong_filter_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2."""
    assert main(["runs", "--runs", str(folder), "--filter", "even"]) == 2
    assert "--filter is 'even'" in capsys.readouterr().err


def test_definitions_come_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Then the list."""
    main(["runs", "--runs", str(folder), "--definitions"])

    assert capsys.readouterr().out.startswith("ttft_from_schedule\n    [s] from")


def test_a_damaged_run_is_told_beside_the_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, the list whole, the damage on standard error and in the JSON."""
    (folder / "2-even" / "manifest.json").write_text("[]")

    assert main(["runs", "--runs", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["1-even", "3-fast"]
    assert "2-even/manifest.json is damaged" in err

    assert main(["runs", "--runs", str(folder), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["unreadable"]) == 1


def test_no_folder_of_runs_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was kept yet; a file in its place is an error."""
    assert main(["runs", "--runs", str(tmp_path / "none")]) == 0
    assert "there is no folder" in capsys.readouterr().out

    (tmp_path / "file").write_text("")
    assert main(["runs", "--runs", str(tmp_path / "file")]) == 2
