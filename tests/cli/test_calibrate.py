import json
from pathlib import Path

import pytest

from chairlift.cli.main import main
from chairlift.devices.file import load_device_model
from tests.lab.calibration.test_calibrate import loaded
from tests.sim.helpers import device_model, runner

TABLE = Path(__file__).parents[1] / "devices" / "fixtures" / "splitwise_excerpt.csv"


def test_a_table_becomes_device_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file for each group; broken rows are named, and the exit code says that there were some."""
    code = main(["calibrate", "--table", str(TABLE), "--out", str(tmp_path / "models"), "--json"])
    told = json.loads(capsys.readouterr().out)

    assert code == (1 if told["findings"] else 0)
    assert told["findings"]
    assert {Path(name) for name in told["written"]} == set((tmp_path / "models").iterdir())
    for name in told["written"]:
        assert load_device_model(Path(name)).provenance.kind == "fitted to a table"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose device is itself a model, in a folder of its own."""
    monkeypatch.setattr("chairlift.engine.loader.load_model", lambda _: loaded(runner(256, model=device_model())))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_machine_becomes_a_device_model(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors by kind of step, the host, the range; and the file, which can be simulated on."""
    assert main(["calibrate", "m.gguf", "--rounds", "2"]) == 0
    text = capsys.readouterr().out

    for said in ("decode", "prefill", "mixed", "left out, by form", "host:", "settling:", "8 rows in a step"):
        assert said in text
    assert text.splitlines()[-1] == "written: tiny.toml; use it as sim:tiny.toml"
    assert load_device_model(machine / "tiny.toml").provenance.kind == "calibrated"
    load = ["--set", "arrivals=burst", "arrivals.size=4", "prompt=20", "output=5"]
    assert main(["simulate", "--device", "tiny.toml", *load, "--num-kv-blocks", "64"]) == 0


@pytest.mark.usefixtures("machine")
def test_all_that_was_measured_is_there_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Every repeat of every step, the host's times, the errors of every form."""
    assert main(["calibrate", "m.gguf", "--rounds", "2", "--json", "--out", "mine.toml"]) == 0
    told = json.loads(capsys.readouterr().out)

    assert told["file"] == "mine.toml"
    assert set(told["errors"]) == {"floor and line", "curve", "smooth curve"}
    assert told["form"] in told["errors"]
    assert {len(one["times_ns"]) for one in told["samples"]} == {2}
    assert 1 in {one["rows"] for one in told["host_ns"]} <= {1, 2, 4, 8}  # so fast a device may be done with the first


@pytest.mark.usefixtures("machine")
def test_a_device_model_is_a_toml_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Another name is refused."""
    assert main(["calibrate", "m.gguf", "--out", "mine.json"]) == 2
    assert "ends in .toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give one of both"),
        (["m", "--table", "t.csv"], "give one of both"),
        (["--table", "nowhere.csv"], "nowhere.csv"),
        (["nowhere.gguf", "--threads", "2"], "nowhere.gguf"),
    ],
)
def test_what_cannot_run_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason."""
    assert main(["calibrate", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("out", ["load.toml", "folder.toml", "load.toml/in-a-file.toml", "model.json"])
def test_where_nothing_can_be_written_nothing_is_measured(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is there and no device model is left alone; the model is not even loaded."""
    monkeypatch.setattr("chairlift.engine.loader.load_model", lambda _: pytest.fail("it was loaded"))
    (tmp_path / "load.toml").write_text("count = 4\n")
    (tmp_path / "folder.toml").mkdir()

    assert main(["calibrate", "m.gguf", "--out", str(tmp_path / out)]) == 2
    assert "--out" in capsys.readouterr().err
    assert (tmp_path / "load.toml").read_text() == "count = 4\n"


def test_a_folder_of_models_that_is_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason, and exit code 2."""
    (tmp_path / "file").write_text("")

    assert main(["calibrate", "--table", str(TABLE), "--out", str(tmp_path / "file")]) == 2
    assert "cannot be written: File exists; name another with --out" in capsys.readouterr().err


def test_a_model_may_be_calibrated_again(machine: Path) -> None:
    """Its own file is replaced."""
    assert main(["calibrate", "m.gguf", "--rounds", "2", "--out", "mine.toml"]) == 0
    first = (machine / "mine.toml").stat().st_mtime_ns
    assert main(["calibrate", "m.gguf", "--rounds", "2", "--out", "mine.toml"]) == 0

    assert (machine / "mine.toml").stat().st_mtime_ns > first
