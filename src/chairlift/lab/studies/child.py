"""A model loaded in a process of its own whose memory is limited, to see what happens when it does not suffice.

    python -m chairlift.lab.studies.child MODEL SETTINGS BYTES

SETTINGS is JSON by name; BYTES limits the process's address space (0: no limit). One line of JSON comes back. A process
that the system ended says nothing, and its exit status tells.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from chairlift.core.errors import ChairliftError, OutOfDeviceMemory

Outcome = Literal["started", "refused", "out of memory", "ended by the system"]
_PATIENCE: Final = 300.0
"""Seconds until a child that says nothing is given up."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """How a start went."""

    outcome: Outcome
    words: str
    """Its memory, or its error."""


def attempt(model: str, settings: Mapping[str, Any], limit: int = 0) -> Attempt:
    """Start a model in a child process and end it again.

    Args:
        model: see EngineConfig.model.
        settings: by name.
        limit: bytes of address space; 0 for no limit.
    """
    command = [sys.executable, "-m", "chairlift.lab.studies.child", model, json.dumps(dict(settings)), str(limit)]
    try:
        done = subprocess.run(  # noqa: S603 - this module, with our own settings
            command, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return Attempt("ended by the system", f"nothing was heard of it for {_PATIENCE:.0f} s.")
    return read_answer(done.returncode, done.stdout, done.stderr)


def read_answer(status: int, out: str, err: str) -> Attempt:
    """What a child's end means: its line where it could still speak, or else its exit status."""
    lines = out.strip().splitlines()
    if status == 0 and lines:
        told = json.loads(lines[-1])
        return Attempt(told["outcome"], told["words"])
    last = err.strip().splitlines()[-1:] or [""]
    signal = f"signal {-status}" if status < 0 else f"exit status {status}"
    return Attempt("ended by the system", f"{signal}. {last[0]}".strip())


def start(model: str, settings: Mapping[str, Any]) -> Attempt:
    """Load, and say how it went."""
    from chairlift.engine.config import EngineConfig  # noqa: PLC0415 - under the limit that main() has set
    from chairlift.engine.loader import load_model  # noqa: PLC0415

    try:
        loaded = load_model(EngineConfig.of(model, settings))
    except OutOfDeviceMemory as error:
        return Attempt("out of memory", str(error))
    except ChairliftError as error:
        return Attempt("refused", str(error))
    except (MemoryError, OSError, RuntimeError) as error:
        return Attempt("out of memory", f"{type(error).__name__}: {error}".splitlines()[0])
    words = loaded.memory.splitlines()[-1].strip()
    loaded.runner.close()
    return Attempt("started", words)


def main(argv: list[str]) -> int:
    """Limit, start, tell."""
    model, settings, limit = argv[0], json.loads(argv[1]), int(argv[2])
    if limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    done = start(model, settings)
    print(json.dumps({"outcome": done.outcome, "words": done.words}))  # noqa: T201 - the answer to the parent
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
