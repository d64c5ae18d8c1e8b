"""One engine in a process of its own: loaded once, then told over a pipe which load to run. Standard library only.

While nobody asks, the process sleeps in a read, so that engines can take turns on one machine within one session.
Messages are lines of JSON: the name of a load there, what came of it back. The first line back says what is loaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent


def serve(about: Mapping[str, Any], run: Callable[[str], Mapping[str, Any]]) -> None:
    """The engine's side: answer until the other side closes. Whatever a library prints goes to standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        print(json.dumps(about), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(run(json.loads(line))), file=answers, flush=True)


@dataclass(frozen=True, slots=True)
class Turn:
    """One load on one engine."""

    result: Mapping[str, Any]
    others: float
    """Cores that other processes kept busy meanwhile: what disturbed the measurement."""

    @property
    def wall(self) -> float:
        """Seconds from the first request to the last token."""
        return float(self.result["wall"])


class EngineProcess:
    """The measuring side.

    Args:
        name: for messages.
        command: starts a process that calls serve().
        log: its standard error.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.about = self._read()

    def run(self, load: str) -> Turn:
        """Have it run a load.

        Raises:
            RuntimeError: the process has ended; the message names its log.
        """
        if self._process.stdin is None:
            raise RuntimeError(f"{self.name} was closed.")
        busy, own = _busy_seconds(), _cpu_seconds(self._process.pid)
        self._process.stdin.write(json.dumps(load) + "\n")
        self._process.stdin.flush()
        result = self._read()
        busy, own = _busy_seconds() - busy, _cpu_seconds(self._process.pid) - own
        return Turn(result, max(0.0, busy - own) / result["wall"])

    def peak_memory(self) -> int:
        """The largest resident set so far, bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text("ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self._process.wait()}; its log is {self._log}.")
        message: dict[str, Any] = json.loads(line)
        return message


def _busy_seconds() -> float:
    """CPU time of the whole machine."""
    fields = [int(field) for field in Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[1:]]
    user, nice, system, _, _, irq, softirq = fields[:7]
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _cpu_seconds(pid: int) -> float:
    """CPU time of one process."""
    after_name = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
