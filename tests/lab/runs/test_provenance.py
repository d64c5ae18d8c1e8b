import subprocess
from pathlib import Path

import pytest

from chairlift.lab.runs.provenance import git_state


def git(folder: Path, *arguments: str) -> None:
    """Run git with an author of its own."""
    author = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *author, *arguments], check=True, capture_output=True)


def test_a_work_tree_is_known_by_its_commit(tmp_path: Path) -> None:
    """Commit, branch, and whether tracked files were changed; new files alone change nothing."""
    git(tmp_path, "init", "-b", "trunk")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "one")
    (tmp_path / "other").write_text("new")
    before = git_state(tmp_path)
    (tmp_path / "file").write_text("two")

    assert len(before.pop("commit")) == 40
    assert before == {"branch": "trunk", "changed": False}
    assert git_state(tmp_path)["changed"] is True


def test_outside_a_work_tree_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor without git, nor where the folder is gone."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    assert git_state(tmp_path) == {}
    assert git_state(tmp_path / "gone") == {}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(Path.cwd()) == {}
