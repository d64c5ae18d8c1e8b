"""`--json FILE`, or `-` for standard output, of commands that run for minutes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from chairlift.core.errors import ConfigError


def check_json_target(target: str | None) -> None:
    """To be called before the work: better now than after minutes.

    Raises:
        ConfigError: the file cannot be written.
    """
    if target in (None, "-"):
        return
    path = Path(target)
    new = not path.exists()
    try:
        with path.open("a", encoding="utf-8"):
            pass
        if new:
            path.unlink()
    except OSError as error:
        raise ConfigError(f"--json {target} cannot be written: {error}") from error


def write_json(told: Any, target: str) -> None:
    """Write it.

    Raises:
        ConfigError: the file cannot be written any more.
    """
    text = json.dumps(told, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--json {target} cannot be written: {error}") from error
