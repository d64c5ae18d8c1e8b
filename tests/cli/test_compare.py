import json
from pathlib import Path

import pytest

from chairlift.cli.main import main
from chairlift.devices.file import save_device_model
from chairlift.lab.studies.folder import StudyRecord
from tests.sim.helpers import device_model

LOAD = ["name=tail", "arrivals=poisson", "arrivals.rate=20", "count=12", "prompt=16", "output=bimodal"]
LOAD += ["output.short=4", "output.long=32", "output.ratio=7:1"]
POOL = ["--num-kv-blocks", "512", "--max-model-len", "512"]


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A toy device, and a folder of its own to work in."""
    monkeypatch.chdir(tmp_path)
    save_device_model(device_model(), tmp_path / "toy.toml")
    return f"sim:{tmp_path / 'toy.toml'}"


def test_the_table_is_printed_with_its_intervals(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A column for each policy, the batch sizes they ran with, and how differences were judged."""
    code = main(["compare", target, "--set", *LOAD, "--sizes", "4", "--repeats", "2", *POOL])
    out = " ".join(capsys.readouterr().out.split())

    assert code == 0
    assert "tail, 2 rounds of each policy" in out
    assert "batches of 4" in out
    assert "not observable" in out
    assert "Student's t interval" in out


def test_json_has_every_round_and_difference(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard output, alone."""
    main(["compare", target, "--set", *LOAD, "--sizes", "2,4", "--repeats", "1", "--json", "-", *POOL])
    told = json.loads(capsys.readouterr().out)

    assert [one["name"] for one in told["tables"]] == ["search", "comparison", "rounds", "differences"]
    assert {run["policy"] for run in told["runs"]} == {"static", "dynamic", "continuous"}
    assert told["status"] == "complete"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["http://host:1"], "is a server: its policy is its own.*chairlift diff"),
        (["m", "--policy", "static"], "--policy static makes no sense here"),
        (["m", "--repeats", "0"], "--repeats is 0"),
        (["m", "--sizes", "0"], "--sizes needs batch sizes of at least 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, with the way out."""
    assert main(["compare", *argv, "--set", *LOAD]) == 2

    err = capsys.readouterr().err
    assert all(part in err for part in said.split(".*"))


def test_a_load_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    """A comparison without the user's own load would be somebody else's."""
    assert main(["compare", "m"]) == 2
    assert "there is no load" in capsys.readouterr().err


@pytest.mark.model
def test_a_model_is_compared_too(demo_model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Loaded once for all runs, with what its scheduler took; every request of every policy is answered."""
    load = ["name=tiny", "arrivals=burst", "arrivals.size=4", "prompt=8", "output=3"]
    small = ["--max-model-len", "64", "--num-kv-blocks", "64", "--sizes", "2", "--repeats", "1"]
    code = main(["compare", str(demo_model_path), "--set", *load, *small, "--out", str(tmp_path / "study")])
    out = capsys.readouterr().out
    record = StudyRecord.read(tmp_path / "study")

    assert code == 0
    assert [run.policy for run in record.runs].count("continuous") == 1
    assert "scheduler, plan and commit of a step" in out
    assert (tmp_path / "study" / "00-warm-up" / "engine").is_dir()
