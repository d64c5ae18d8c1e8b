"""Studies make many runs, and each looks at the git work tree it was started in: here there is none."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _outside_a_work_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
