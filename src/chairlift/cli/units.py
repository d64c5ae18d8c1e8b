"""Quantities as people write them: durations (50ms), sizes (2GiB), lists (1,2,4). Each kind can read and write itself.

A reader raises ValueError with what would do ("a duration with a unit, such as 50ms"); whoever knows the flag adds it
and the value.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

_QUANTITY: Final = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zµμ]*)\s*", re.IGNORECASE)

_NANOSECONDS: Final = {"h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_BYTES: Final = {
    "TiB": 1 << 40,
    "GiB": 1 << 30,
    "MiB": 1 << 20,
    "KiB": 1 << 10,
    "TB": 10**12,
    "GB": 10**9,
    "MB": 10**6,
    "kB": 10**3,
    "B": 1,
}
_ANY_CASE_BYTES: Final = {unit.lower(): size for unit, size in _BYTES.items()}


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of value is read from the command line and written back."""

    metavar: str
    """What stands for the value in a usage line."""
    read: Callable[[str], Any]
    """From text. Raises ValueError with what would do."""
    write: Callable[[Any], str] = str
    """To text that `read` would read."""


def read_whole(text: str) -> int:
    """An int."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number, such as 32") from None


def read_number(text: str) -> float:
    """A float that is a number."""
    try:
        number = float(text)
    except ValueError:
        raise ValueError("a number, such as 0.9") from None
    if not math.isfinite(number):
        raise ValueError("a finite number, such as 0.9")
    return number


def read_duration(text: str) -> int:
    """Nanoseconds of a duration. Only 0 needs no unit: a bare 50 could be anything."""
    return _read_quantity(text, _NANOSECONDS, "a duration with a unit (ns, us, ms, s, m, h), such as 50ms or 1.5s")


def write_duration(nanoseconds: int) -> str:
    """In seconds or the largest smaller unit that needs one decimal at most."""
    for unit, limit in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if nanoseconds >= limit and nanoseconds % (limit // 10) == 0:
            return f"{Decimal(nanoseconds) / limit:f}{unit}"
    return f"{nanoseconds}ns" if nanoseconds else "0"


def read_size(text: str) -> int:
    """Bytes of a size. Only 0 needs no unit."""
    return _read_quantity(
        text, _ANY_CASE_BYTES, "a size with a unit (kB, MB, GB, KiB, MiB, GiB), such as 2GiB or 512MiB"
    )


def write_size(size: int) -> str:
    """In the largest binary unit that needs two decimals at most."""
    for unit, factor in _BYTES.items():
        if unit.endswith("iB") and size >= factor and size % (factor // 4) == 0:
            return f"{Decimal(size) / factor:f}{unit}"
    return f"{size}B" if size else "0"


def read_whole_list(text: str) -> tuple[int, ...]:
    """Ints with commas between."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    try:
        return tuple(int(part) for part in parts)
    except ValueError:
        raise ValueError("whole numbers with commas between, such as 4,8") from None


def write_list(values: tuple[object, ...]) -> str:
    """With commas between."""
    return ",".join(map(str, values)) or "none"


def read_text_list(text: str) -> tuple[str, ...]:
    """Texts with commas between."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def read_path(text: str) -> Path:
    """A path; ~ is the home directory."""
    if not text:
        raise ValueError("a path")
    return Path(text).expanduser()


def choice(options: tuple[str, ...]) -> Kind:
    """One of several words."""

    def read(text: str) -> str:
        if text in options:
            return text
        near = difflib.get_close_matches(text.lower(), options, n=1, cutoff=0.5)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"one of {', '.join(options)}{meant}")

    return Kind("{" + ",".join(options) + "}", read)


WHOLE: Final = Kind("N", read_whole)
NUMBER: Final = Kind("X", read_number, lambda value: f"{value:g}")
DURATION: Final = Kind("DURATION", read_duration, write_duration)
SIZE: Final = Kind("SIZE", read_size, write_size)
TEXT: Final = Kind("TEXT", str)
PATH: Final = Kind("PATH", read_path)
WHOLE_LIST: Final = Kind("N,N,...", read_whole_list, write_list)
TEXT_LIST: Final = Kind("TEXT,...", read_text_list, write_list)


def _read_quantity(text: str, units: dict[str, int], expected: str) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(expected)
    number, unit = Decimal(match[1]), match[2].lower().replace("µ", "u").replace("μ", "u")
    if not unit and number == 0:
        return 0
    if unit not in units:
        raise ValueError(expected)
    amount = number * units[unit]
    if amount != int(amount):
        raise ValueError(f"{expected}; {text} is not a whole number of the smallest unit")
    return int(amount)
