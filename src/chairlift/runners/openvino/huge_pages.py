"""Puts the weights into huge pages, where the kernel can.

A step reads all weights, and on pages of 4 KiB it pays for the translation of every one of them. The plugin allocates
packed weights itself, out of reach of any advice given beforehand; but Linux 6.1 and later moves what lies in memory
already (MADV_COLLAPSE, madvise(2)), whatever the system's setting for huge pages is. Elsewhere nothing happens.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from chairlift.runners.openvino.memory import MIB

MADV_COLLAPSE = 25
HUGE_PAGE = 2 * MIB
"""On x86-64, and on Arm with pages of 4 KiB."""
PIECE = 16 * HUGE_PAGE
"""Bytes moved between two looks at the clock."""

Move = Callable[[int, int], bool]
"""Moves so many bytes at an address; whether the kernel did."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """A range of this process's memory, bytes."""

    start: int
    end: int
    resident: int
    huge: int
    """Of these, in huge pages already."""


def collapse_resident_memory(seconds: float, smallest: int = 2 * HUGE_PAGE) -> int:
    """Move anonymous memory that is in use into huge pages.

    Args:
        seconds: stop after about this time, wherever it stands: the kernel may have to make room first.
        smallest: mappings of fewer bytes are left alone.

    Returns:
        Bytes moved; 0 where the system cannot.
    """
    try:
        smaps = Path("/proc/self/smaps").read_text("utf-8")
    except OSError:
        return 0
    move = _mover()
    deadline = time.monotonic() + seconds
    moved = 0
    for start, end in pieces(smaps, smallest):
        if time.monotonic() > deadline:
            break
        if move(start, end - start):
            moved += end - start
    return moved


def pieces(smaps: str, smallest: int) -> Iterator[tuple[int, int]]:
    """Ranges worth moving, in whole huge pages, no longer than PIECE each.

    Only mappings that are almost wholly in use count: a stack or a reserve that nobody has touched would become real
    memory.
    """
    for mapping in anonymous_mappings(smaps):
        size = mapping.end - mapping.start
        if size < smallest or mapping.resident < 7 * size // 8 or mapping.huge > mapping.resident // 2:
            continue
        first, last = -(-mapping.start // HUGE_PAGE) * HUGE_PAGE, mapping.end // HUGE_PAGE * HUGE_PAGE
        for start in range(first, last, PIECE):
            yield start, min(start + PIECE, last)


def anonymous_mappings(smaps: str) -> Iterator[Mapping]:
    """Writable private memory without a file, from the text of /proc/self/smaps (proc(5))."""
    bounds: tuple[int, int] | None = None
    resident = 0
    for line in smaps.splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            name = words[5] if len(words) > 5 else ""
            begin, _, end = words[0].partition("-")
            bounds = (int(begin, 16), int(end, 16)) if words[1] == "rw-p" and name in ("", "[heap]") else None
        elif words[0] == "Rss:":
            resident = int(words[1]) * 1024
        elif words[0] == "AnonHugePages:" and bounds is not None:
            yield Mapping(*bounds, resident, int(words[1]) * 1024)


def _mover() -> Move:
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def move(start: int, size: int) -> bool:
        return bool(madvise(start, size, MADV_COLLAPSE) == 0)

    return move
