"""Times between tokens as runs: what keeps a request of a million simulated tokens small.

A simulated step time is (a + b k) / c, rounded down to nanoseconds, in the k-th of a run of steps; so is the time
between the tokens that they bring.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, overload

from chairlift.core.request import Nanoseconds

_LARGEST = 2**63 - 1
"""Columns hold 64 bits."""


class GapRun(NamedTuple):
    """So many gaps: in nanoseconds, base + (start + k x step) // divisor for k = 0, 1, ..."""

    gaps: int
    base: Nanoseconds
    start: int = 0
    step: int = 0
    divisor: int = 1

    def at(self, k: int) -> Nanoseconds:
        """The k-th gap, from 0."""
        return self.base + (self.start + k * self.step) // self.divisor

    def after(self, gaps: int) -> GapRun:
        """What is left behind so many of them."""
        return self._replace(gaps=self.gaps - gaps, start=self.start + gaps * self.step)


def fitting(run: GapRun) -> Iterator[GapRun]:
    """The run in numbers of 64 bits: whole nanoseconds move into the base, and a run that is still too large is cut."""
    whole, start = divmod(run.start, run.divisor)
    run = run._replace(base=run.base + whole, start=start)
    if run.gaps == 1:
        yield GapRun(1, run.at(0))
    elif max(run.divisor, run.start + run.gaps * abs(run.step)) <= _LARGEST:
        yield run
    else:
        half = run.gaps // 2
        yield from fitting(run._replace(gaps=half))
        yield from fitting(run.after(half))


class Gaps(Sequence[Nanoseconds]):
    """The gaps of runs, one after the other; each is computed when it is looked at."""

    __slots__ = ("_ends", "_runs")

    def __init__(self, runs: Sequence[GapRun]) -> None:
        self._runs = runs
        self._ends = list(accumulate(run.gaps for run in runs))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Nanoseconds]:
        for gaps, base, start, step, divisor in self._runs:
            if gaps == 1:
                yield base + start // divisor
            else:
                for k in range(gaps):
                    yield base + (start + k * step) // divisor

    @overload
    def __getitem__(self, index: int) -> Nanoseconds: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Nanoseconds]: ...
    def __getitem__(self, index: int | slice) -> Nanoseconds | Sequence[Nanoseconds]:
        where = range(len(self))[index]
        if isinstance(where, range):
            return [self[at] for at in where]
        run = bisect_right(self._ends, where)
        return self._runs[run].at(where - (self._ends[run - 1] if run else 0))
