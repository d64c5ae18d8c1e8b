import json
from pathlib import Path

import pytest

from chairlift.cli.json_file import check_json_target, write_json
from chairlift.core.errors import ConfigError


def test_what_cannot_be_written_is_found_before_the_work(tmp_path: Path) -> None:
    """A folder, and a file in a folder that is not there; the message names the flag."""
    for target in (tmp_path, tmp_path / "missing" / "out.json"):
        with pytest.raises(ConfigError, match=r"--json .* cannot be written"):
            check_json_target(str(target))


def test_looking_leaves_nothing_behind_and_harms_nothing(tmp_path: Path) -> None:
    """A new file is gone again, an old one is as it was; nothing and standard output need no look."""
    old = tmp_path / "old.json"
    old.write_text("kept")
    for target in (str(tmp_path / "new.json"), str(old), None, "-"):
        check_json_target(target)

    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]
    assert old.read_text() == "kept"


def test_it_is_written_to_the_file_or_to_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same text."""
    write_json({"a": 1}, str(tmp_path / "out.json"))
    write_json({"a": 1}, "-")

    assert json.loads((tmp_path / "out.json").read_text()) == {"a": 1}
    assert capsys.readouterr().out == (tmp_path / "out.json").read_text()
