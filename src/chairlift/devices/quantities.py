"""Exact quantities in files: times with a unit as integer femtoseconds, sizes as integer bytes.

A step's cost per token can be well below a picosecond on a large device and a small model, so coefficients are kept in
femtoseconds (1e-15 s). Reading and writing go through Decimal and lose nothing.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final, TypeAlias

from chairlift.core.errors import DeviceModelError

Femtoseconds: TypeAlias = int
"""1e-15 s. Coefficients of a device model; durations leave it as integer nanoseconds."""

PER_NANOSECOND: Final = 10**6
"""Femtoseconds in a nanosecond."""
PER_SECOND: Final = 10**15
"""Femtoseconds in a second."""

_TIMES: Final = {"s": 10**15, "ms": 10**12, "us": 10**9, "ns": 10**6, "ps": 10**3, "fs": 1}
_SIZES: Final = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "GB": 10**9, "MB": 10**6, "kB": 10**3, "B": 1}
_NUMBER: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]*)")


def read_time(text: str) -> Femtoseconds:
    """`22.3us` -> femtoseconds. Only 0 needs no unit.

    Raises:
        DeviceModelError: not a time, negative, or finer than a femtosecond.
    """
    return _read(text, _TIMES, "a time with a unit (s, ms, us, ns, ps, fs), such as 22.3us")


def read_size(text: str) -> int:
    """`79.6GiB` -> bytes. Only 0 needs no unit.

    Raises:
        DeviceModelError: not a size, negative, or no whole number of bytes.
    """
    return _read(text, _SIZES, "a size with a unit (GiB, MiB, KiB, GB, MB, kB, B), such as 80GiB")


def write_time(time: Femtoseconds) -> str:
    """In the largest unit in which the number is at least one: read_time() of it gives the same."""
    return _write(time, _TIMES)


def write_size(size: int) -> str:
    """In the largest binary unit that needs no fraction: read_size() of it gives the same."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % _SIZES[unit] == 0:
            return f"{size // _SIZES[unit]}{unit}"
    return f"{size}B"


def femtoseconds(seconds: float) -> Femtoseconds:
    """To five significant digits: estimates and fits have no more, and a file stays readable."""
    return round(float(f"{seconds * PER_SECOND:.5g}"))


def show_size(size: int) -> str:
    """For people: `1,440 MiB` below 10 GiB, else `11.7 GiB`."""
    return f"{size / 2**20:,.0f} MiB" if size < 10 * 2**30 else f"{size / 2**30:,.1f} GiB"


def show_time(nanoseconds: float) -> str:
    """For people, with three digits: `7.02 ms`."""
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(nanoseconds) >= factor:
            return f"{nanoseconds / factor:.3g} {unit}" if nanoseconds < 1e12 else f"{nanoseconds / factor:,.0f} {unit}"
    return f"{nanoseconds:.3g} ns"


def _read(text: str, units: dict[str, int], expected: str) -> int:
    match = _NUMBER.fullmatch(text.strip())
    if match is None or (match[2] not in units and not (match[2] == "" and Decimal(match[1]) == 0)):
        raise DeviceModelError(f"{text!r} is not {expected}.")
    amount = Decimal(match[1]) * units.get(match[2], 1)
    if amount != int(amount):
        raise DeviceModelError(f"{text!r} is finer than the smallest unit; give {expected}.")
    return int(amount)


def _write(amount: int, units: dict[str, int]) -> str:
    for unit, factor in units.items():
        if amount >= factor:
            # Decimal's default precision of 28 digits holds any amount below 10**28 of the smallest unit.
            return f"{(Decimal(amount) / factor).normalize():f}{unit}"
    return "0"
