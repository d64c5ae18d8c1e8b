"""Durations as people write them in a load (2s, 250ms), in integer nanoseconds."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from chairlift.core.request import Nanoseconds

SECOND: Final = 10**9

_UNITS: Final = {"h": 3600 * SECOND, "m": 60 * SECOND, "s": SECOND, "ms": 10**6, "us": 10**3, "ns": 1}
_DURATION: Final = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zµμ]*)\s*", re.IGNORECASE)
_EXPECTED: Final = "a duration with a unit (ns, us, ms, s, m, h), such as 250ms or 1.5s"


def read_duration(text: str) -> Nanoseconds:
    """Nanoseconds of a duration. Only 0 needs no unit: a bare 50 could be anything.

    Raises:
        ValueError: what would do instead.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(_EXPECTED)
    number, unit = Decimal(match[1]), match[2].lower().replace("µ", "u").replace("μ", "u")
    if not unit and number == 0:
        return 0
    if unit not in _UNITS:
        raise ValueError(_EXPECTED)
    amount = number * _UNITS[unit]
    if amount != int(amount):
        raise ValueError(f"{_EXPECTED}; this one is no whole number of nanoseconds")
    return int(amount)


def write_duration(nanoseconds: Nanoseconds) -> str:
    """The shortest text that `read_duration` reads back to the same number."""
    if not nanoseconds:
        return "0s"
    unit = next(unit for unit in ("s", "ms", "us", "ns") if nanoseconds % max(1, _UNITS[unit] // 10) == 0)
    return f"{Decimal(nanoseconds) / _UNITS[unit]:f}{unit}"


def seconds(nanoseconds: float) -> float:
    """For people and formulas; schedules stay in nanoseconds."""
    return nanoseconds / SECOND
