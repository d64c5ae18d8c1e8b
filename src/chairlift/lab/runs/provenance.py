"""Where a run was started from: the git work tree, if it was one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

_PATIENCE: Final = 10.0
"""Seconds for git to answer; a work tree on a slow disk is left out rather than waited for."""


def git_state(folder: Path) -> dict[str, Any]:
    """Commit, branch, and whether tracked files were changed; empty outside a work tree or without git."""
    program = shutil.which("git")
    commit = None if program is None else _ask(program, folder, "rev-parse", "HEAD")
    if program is None or not commit:
        return {}
    changes = _ask(program, folder, "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": commit,
        "branch": _ask(program, folder, "rev-parse", "--abbrev-ref", "HEAD"),
        "changed": None if changes is None else bool(changes),
    }


def _ask(program: str, folder: Path, *arguments: str) -> str | None:
    """What git prints, or None where it will not."""
    try:
        done = subprocess.run(  # noqa: S603 - found on the path, asked with constants
            [program, "-C", str(folder), *arguments], capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
