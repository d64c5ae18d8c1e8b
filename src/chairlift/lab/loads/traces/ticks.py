"""Recorded times that were rounded to a tick: noticed, and undone as far as that is possible.

Replayed as they are, rounded times make a burst of every tick, which no user ever sent.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from chairlift.core.request import Nanoseconds
from chairlift.lab.loads.draws import Draws
from chairlift.lab.loads.units import write_duration

LEAST_TICK: Nanoseconds = 1_000_000
"""Finer times than a millisecond are taken as exact."""

_TOLERANCE = 0.01
"""How far, in ticks, a gap may be from a whole number of ticks: recorders drift (Mooncake's 3 s are 2.999 at times)."""


@dataclass(frozen=True, slots=True)
class Ticks:
    """What was noticed about the times of a trace."""

    tick: Nanoseconds
    distinct: int
    """How many different times there are."""
    rows: int

    def __str__(self) -> str:
        return (
            f"times come in ticks of {write_duration(self.tick)}: {self.distinct:,} distinct values "
            f"in {self.rows:,} requests"
        )


def find_ticks(times: Sequence[Nanoseconds]) -> Ticks | None:
    """Whether times (ascending) are rounded: some are equal, and the gaps between the others are multiples of a tick.

    None: they are not, or there are fewer than three different ones to tell by.
    """
    distinct = sorted(set(times))
    gaps = [after - before for before, after in itertools.pairwise(distinct)]
    if len(distinct) == len(times) or len(gaps) < 2:
        return None
    tick = _drifting(gaps) or math.gcd(*gaps)
    return Ticks(tick, len(distinct), len(times)) if tick >= LEAST_TICK else None


def spread(times: Sequence[Nanoseconds], ticks: Ticks, draws: Draws) -> array[int]:
    """Times (ascending) with those of one tick spread evenly at random inside it, in their order.

    No time moves back, nor as far as the next tick's.
    """
    moved = array("q", times)
    begin = 0
    while begin < len(times):
        end = begin
        while end < len(times) and times[end] == times[begin]:
            end += 1
        room = min(ticks.tick, times[end] - times[begin]) if end < len(times) else ticks.tick
        inside = sorted(draws.uniform("ticks", row) for row in range(begin, end))
        for row, share in zip(range(begin, end), inside, strict=True):
            moved[row] = times[begin] + int(share * room)
        begin = end
    return moved


def _drifting(gaps: list[Nanoseconds]) -> Nanoseconds | None:
    """The tick near the smallest gap, if all gaps but 1% are multiples of it within the tolerance."""
    smallest = sorted(gaps)[len(gaps) // 100]
    single = [gap for gap in gaps if gap < 1.5 * smallest]
    tick = sum(single) / len(single)
    fitting = sum(abs(gap / tick - round(gap / tick)) <= _TOLERANCE * max(1, round(gap / tick)) for gap in gaps)
    return _rounded(tick) if fitting >= 0.99 * len(gaps) else None


def _rounded(tick: float) -> Nanoseconds:
    """The tick as whoever wrote the recorder would say it: to two digits if that is within the tolerance."""
    plain = int(float(f"{tick:.2g}"))
    return plain if abs(plain - tick) <= _TOLERANCE * tick else round(tick)
