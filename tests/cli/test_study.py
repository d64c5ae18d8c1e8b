import json
import subprocess
import sys
from pathlib import Path

import pytest

from chairlift.cli.main import main
from chairlift.devices.file import save_device_model
from chairlift.lab.studies.catalogue import CATALOGUE
from chairlift.lab.studies.folder import StudyRecord
from tests.sim.helpers import device_model

POOL = ["--num-kv-blocks", "512", "--max-model-len", "512"]


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A toy device, and a folder of its own to work in."""
    monkeypatch.chdir(tmp_path)
    save_device_model(device_model(), tmp_path / "toy.toml")
    return f"sim:{tmp_path / 'toy.toml'}"


def test_a_study_is_printed_and_kept(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables, sentences and the folder on standard output; progress on standard error."""
    code = main(["study", "uniform", target, "--quick", *POOL])
    out, err = capsys.readouterr()
    [folder] = (tmp_path / "runs").iterdir()

    assert code == 0
    assert "Even load: prompts of 64 tokens" in out
    assert f"kept in {Path('runs') / folder.name}" in out
    assert err.count("output tokens/s") == 3
    assert folder.name.endswith("-uniform")
    assert StudyRecord.read(folder).status == "complete"


def test_a_verdict_that_asks_for_a_change_is_exit_code_1(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And is printed with its setting."""
    code = main(["study", "uniform", target, "--quick", "--max-num-seqs", "1", *POOL])

    assert code == 1
    assert "change: --max-num-seqs from 1 to 8" in capsys.readouterr().out


def test_json_is_the_study_and_nothing_else(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same as its file, in the folder that was named."""
    code = main(["study", "baseline", target, "--quick", "--json", "-", "--out", str(tmp_path / "here"), *POOL])
    told = json.loads(capsys.readouterr().out)

    assert code == 0
    assert told == json.loads((tmp_path / "here" / "study.json").read_text())
    assert told["name"] == "baseline"


def test_a_study_that_is_not_there_is_answered_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    """And the one that was probably meant."""
    assert main(["study", "basline", "m"]) == 2
    err = capsys.readouterr().err

    assert "did you mean baseline?" in err
    assert all(name in err for name in CATALOGUE)


def test_help_names_every_study(capsys: pytest.CaptureFixture[str]) -> None:
    """As the catalogue has them."""
    assert main(["study", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())

    assert ", ".join(CATALOGUE) in words


def test_a_server_is_measured_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The part that needs no settings; what only its engine could tell is left out, and the way out is named."""
    command = [sys.executable, "-m", "chairlift.lab.client.null_server", "--chunks", "3", "--interval", "0.002"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        url = process.stdout.readline().strip()
        main(["study", "mixed", url, "--quick", "--out", str(tmp_path / "study")])
        process.stdin.close()
    out = " ".join(capsys.readouterr().out.split())

    assert "The load as the target ran it." in out
    assert "useful, share" not in out
    assert "Give the model itself as TARGET to see all three policies" in out
    assert len(StudyRecord.read(tmp_path / "study").runs) == 1


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["myths", "http://127.0.0.1:1"], "give the model itself as TARGET"),
        (["baseline", "http://127.0.0.1:1"], "http://127.0.0.1:1"),
        (["baseline", "http://x", "--max-num-seqs", "4"], "--max-num-seqs cannot be set: http://x is a server"),
    ],
)
def test_what_cannot_run_is_refused(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2 and the reason."""
    monkeypatch.chdir(tmp_path)

    assert main(["study", *argv]) == 2
    assert said in capsys.readouterr().err
