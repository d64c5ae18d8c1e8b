"""What the benchmarks that take turns on one machine share."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(lock: Path | None) -> Iterator[None]:
    """Hold a lock file, if one is given, so that measurements of several people on one machine do not overlap."""
    if lock is None:
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
