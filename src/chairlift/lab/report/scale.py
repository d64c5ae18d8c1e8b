"""Numbers of an axis, and numbers and times as people read them."""

from __future__ import annotations

import math
from typing import Final

DASH: Final = "\N{EN DASH}"
"""Stands for nothing."""
_STEPS: Final = (1.0, 2.0, 5.0, 10.0)


def ticks(start: float, stop: float, most: int) -> list[float]:
    """Round values within a range, at most so many and equally far apart (1, 2 or 5 times a power of ten)."""
    if stop <= start:
        return [start]
    rough = (stop - start) / max(1, most - 1)
    power = 10 ** math.floor(math.log10(rough))
    step = next(one * power for one in _STEPS if one * power >= rough * (1 - 1e-9))
    first = math.ceil(start / step - 1e-9)
    return [round(at * step, 12) for at in range(first, math.floor(stop / step + 1e-9) + 1)]


def log_ticks(start: float, stop: float, most: int) -> list[float]:
    """Round values of a logarithmic axis: powers of ten, with 2 and 5 times or 3 times them where there is room."""
    powers = range(math.floor(math.log10(start)), math.ceil(math.log10(stop)) + 1)
    inside: list[float] = []
    for factors in ((1, 2, 5), (1, 3), (1,)):
        inside = [factor * 10.0**power for power in powers for factor in factors]
        inside = [value for value in inside if start <= value <= stop]
        if len(inside) <= most:
            return inside
    return inside[:: math.ceil(len(inside) / most)]


def number(value: float | None, digits: int = 3) -> str:
    """So many digits that count, with thousands apart; a dash for nothing."""
    if value is None:
        return DASH
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if places <= 0:
        return f"{round(value, places):,.0f}"
    return f"{value:,.{places}f}"


def seconds(nanoseconds: float) -> str:
    """With a unit that fits."""
    if nanoseconds and abs(nanoseconds) < 1e6:
        return f"{number(nanoseconds / 1e3)} µs"
    if nanoseconds and abs(nanoseconds) < 1e9:
        return f"{number(nanoseconds / 1e6)} ms"
    return f"{number(nanoseconds / 1e9)} s"


def share(value: float | None) -> str:
    """As a percentage."""
    return DASH if value is None else f"{value:.0%}" if value >= 0.1 or value == 0 else f"{value:.1%}"
