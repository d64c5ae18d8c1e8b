import json
from pathlib import Path

import pytest

from chairlift.cli.main import main
from chairlift.devices.file import load_device_model

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
