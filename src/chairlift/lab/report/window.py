"""Which part of long runs a picture shows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from chairlift.core.errors import ConfigError
from chairlift.core.request import Nanoseconds
from chairlift.lab.report.grid import Grid

MOST_STEPS: Final = 600
"""Steps that are shown unless another part is asked for: more would be narrower than a pixel or so."""
CLOSE_STEPS: Final = 110
"""Steps of a closer look: each is wide enough for its tokens to be seen one by one."""
_TRIES: Final = 400
_CLOSER: Final = 0.4
"""Of a part, what a closer look shows at most: else it would not be closer."""

Timed = tuple[Grid, Nanoseconds]
"""A run's grid, and its zero."""
Span = tuple[Nanoseconds, Nanoseconds]
"""From where to where, in nanoseconds since each run's zero."""


def chosen(
    grids: Sequence[Timed], length: Nanoseconds, start: Nanoseconds | None = None, stop: Nanoseconds | None = None
) -> Span:
    """The part to show: what was asked for; else all of it where no run has more than MOST_STEPS steps; else the
    densest part.

    Args:
        grids: of the runs.
        length: of the longest run.
        start: where it is to begin; None with a stop: at the beginning.
        stop: where it is to end; None with a start: at the end.

    Raises:
        ConfigError: it ends before it begins, or begins after the runs' end.
    """
    if start is not None or stop is not None:
        first, last = start or 0, length if stop is None else min(stop, length)
        if first >= last:
            raise ConfigError(
                f"--from is {first / 1e9:g} s and --to {last / 1e9:g} s: there is nothing between them; the runs are "
                f"{length / 1e9:.4g} s long."
            )
        return first, last
    return densest(grids, (0, max(length, 1)), MOST_STEPS)


def closer(grids: Sequence[Timed], span: Span) -> Span | None:
    """The densest part of a part that shows too many steps for single tokens to be seen; None where they are seen."""
    near = densest(grids, span, CLOSE_STEPS)
    return near if near[1] - near[0] < _CLOSER * (span[1] - span[0]) else None


def densest(grids: Sequence[Timed], span: Span, most: int) -> Span:
    """The part in which the runs together computed the most tokens, so long that no run has more than `most` steps in
    as much time on average; the whole span where none has more in it.
    """
    runs = [_Sums(grid, zero) for grid, zero in grids]
    steps = max((run.steps(*span) for run in runs), default=0)
    if steps <= most:
        return span
    start, stop = span
    length = max(1, (stop - start) * most // steps)
    begins = (start + (stop - start - length) * at // _TRIES for at in range(_TRIES + 1))
    begin = max(begins, key=lambda at: (sum(run.tokens(at, at + length) for run in runs), -at))
    return begin, begin + length


class _Sums:
    """Steps and tokens of a run before each moment."""

    def __init__(self, grid: Grid, zero: Nanoseconds) -> None:
        self._grid, self._zero = grid, zero
        tokens = (sum(grid.counts(at, at + 1)) for at in range(len(grid.steps)))
        self._before = list(accumulate(tokens, initial=0))

    def steps(self, start: Nanoseconds, stop: Nanoseconds) -> int:
        return self._between(self._grid.repeats, start, stop)

    def tokens(self, start: Nanoseconds, stop: Nanoseconds) -> int:
        return self._between(self._before, start, stop)

    def _between(self, before: Sequence[int], start: Nanoseconds, stop: Nanoseconds) -> int:
        first, end = (bisect_left(self._grid.starts, self._zero + at) for at in (start, stop))
        return before[end] - before[first]
