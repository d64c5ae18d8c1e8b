import json
from pathlib import Path

import pytest

from chairlift.cli.main import main
from tests.cli.test_runs import folder

__all__ = ["folder"]


def test_the_same_load_is_said_first_and_then_the_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the change of each figure, and a warning not to believe one run a side."""
    assert main(["diff", "1", "2", "--runs", str(folder)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "1-even -> 2-even",
        "the loads are the same",
        "parameters: the same",
        "machine and versions: the same",
    ]
    [mean] = [line.split() for line in lines if "ttft_from_schedule mean" in line]
    assert mean[-3:] == ["0.03", "0.06", "+100.0%"]
    assert "one run on each side" in " ".join(lines)


def test_different_loads_are_exit_code_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And what differs in them stands before anything else."""
    assert main(["diff", "1-even", "last", "--runs", str(folder)]) == 1

    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["the loads differ:", "  arrivals.rate: 10 -> 20"]


def test_a_diff_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same, for programs."""
    assert main(["diff", "1", "2", "--runs", str(folder), "--json", "--definitions"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["load"]["same"] is True
    assert "ttft_from_send" in told["definitions"]


def test_a_run_that_is_not_there_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and how to find one."""
    assert main(["diff", "1", "9", "--runs", str(folder)]) == 2
    assert "there is no one run '9'" in capsys.readouterr().err
