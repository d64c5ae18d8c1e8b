"""Figures in sentences and tables: numbers with as many digits as count, and their units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

NONE: Final = "-"


def number(value: float | None, digits: int = 3) -> str:
    """So many digits that count, and never an exponent; a dash for nothing."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    return f"{value:.6f}".rstrip("0") if "e" in text else text


def seconds(value: float | None) -> str:
    """In seconds, or in milliseconds below one tenth."""
    if value is None:
        return NONE
    return f"{number(value * 1e3)} ms" if 0 < abs(value) < 0.1 else f"{number(value)} s"


def percent(share: float | None) -> str:
    """A share between 0 and 1."""
    if share is None:
        return NONE
    return f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"


def spread(values: Sequence[float | None]) -> str:
    """Mean, and smallest and largest where there are several; a dash where one is missing."""
    known = [value for value in values if value is not None]
    if not known or len(known) != len(values):
        return NONE
    mean = sum(known) / len(known)
    low, high = number(min(known)), number(max(known))
    return number(mean) if low == high else f"{number(mean)} ({low} to {high})"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
