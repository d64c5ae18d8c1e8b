"""A grid as rectangles: a cell a token where there is room for it, stretches of equal tokens where there is not.

Nothing is lost in drawing: every token of the steps that are shown is in exactly one rectangle, which knows how many it
stands for. A step's rectangle is as wide as the step was long, from the plan to the commit; a row's tokens of different
kinds (a prompt and its padding) share it in proportion. Equal steps that a simulation jumped over share the time of the
jump evenly.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby, pairwise
from operator import attrgetter
from typing import Final

from chairlift.core.request import Nanoseconds
from chairlift.lab.report.grid import NOTHING, TOKEN_KINDS, Counts, Grid, Stretch, total
from chairlift.records.schema import StepRecord

TOKEN_WIDTH: Final = 2.2
"""Pixels: the least width of a cell that stands for one token."""
RESTING: Final = "resting"
"""The kind of a rectangle in which a request had a slot and nothing was computed for it."""
_TOGETHER: Final = 0.6
"""Pixels between two steps that are drawn as one stretch."""


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a run that is drawn: steps that begin in it."""

    start: Nanoseconds
    stop: Nanoseconds
    pixel: float = 1.0
    """Nanoseconds of a pixel."""
    single: bool = True
    """Draw tokens one by one where there is room. In rows too low to tell them apart that would be mere weight."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A rectangle of one kind in a slot."""

    slot: int
    start: float
    """ns, on the run's clock."""
    stop: float
    kind: str
    """Of TOKEN_KINDS, or resting. Of several that are too small to be drawn, the one with the most time."""
    tokens: Counts
    """What it stands for."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Which steps of a grid a window shows."""

    first: int
    """Index of the first record of steps."""
    end: int
    """Index behind the last."""
    steps: int
    """How many steps those are."""
    tokens: Counts = field(default=NOTHING)
    """As their records say."""


def clipped(grid: Grid, window: Window) -> Grid:
    """The same grid, in which a run of equal steps that reaches over an edge of the window stands for those of its
    steps alone that begin in it.
    """
    edges = {bisect_left(grid.starts, edge) - 1 for edge in (window.start, window.stop)} - {-1}
    reaching = [at for at in edges if grid.steps[at].repeats > 1 and grid.ends[at] > window.start]
    if not reaching:
        return grid
    steps = list(grid.steps)
    for at in reaching:
        steps[at] = _part(steps[at], window)
    return replace(
        grid,
        steps=tuple(steps),
        starts=tuple(step.planned for step in steps),
        ends=tuple(step.committed for step in steps),
        repeats=tuple(accumulate((step.repeats for step in steps), initial=0)),
    )


def _part(step: StepRecord, window: Window) -> StepRecord:
    """Those of a run of equal steps that begin in the window; all of it where none does."""
    begin, span, steps = step.planned, step.committed - step.planned, step.repeats
    first = max(0, -((begin - window.start) * steps // span))
    end = min(steps, -((begin - window.stop) * steps // span))
    if first >= end:
        return step
    tokens = {kind: getattr(step, kind) // steps * (end - first) for kind in TOKEN_KINDS}
    planned, committed = begin + span * first // steps, begin + span * end // steps
    return replace(step, repeats=end - first, planned=planned, committed=committed, **tokens)


def shown(grid: Grid, window: Window) -> Shown:
    """The records of steps that begin in a window, of a grid that is clipped to it."""
    first, end = bisect_left(grid.starts, window.start), bisect_left(grid.starts, window.stop)
    return Shown(first, end, grid.repeats[end] - grid.repeats[first], grid.counts(first, end))


def cells(grid: Grid, window: Window) -> Iterator[Cell]:
    """All rectangles of a window, slot by slot in order of time."""
    grid = clipped(grid, window)
    part = shown(grid, window)
    breaks = [
        at for at in range(part.first + 1, part.end) if grid.starts[at] - grid.ends[at - 1] > _TOGETHER * window.pixel
    ]
    for slot, stays in groupby(sorted(grid.stays, key=attrgetter("slot", "first")), key=attrgetter("slot")):
        drawn = (
            cell
            for stay in stays
            if stay.first < part.end and stay.end > part.first
            for stretch in stay.stretches
            for piece in _pieces(stretch, part, breaks)
            for cell in _cells_of(grid, slot, piece, stretch.share, window)
        )
        yield from _merged(drawn, window)


def _pieces(stretch: Stretch, part: Shown, breaks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """A stretch without the pauses in it; a rest goes on over them."""
    first, end = max(stretch.first, part.first), min(stretch.end, part.end)
    if first >= end:
        return
    inner = () if stretch.share == NOTHING else breaks[bisect_right(breaks, first) : bisect_left(breaks, end)]
    yield from pairwise((first, *inner, end))


def _cells_of(grid: Grid, slot: int, piece: tuple[int, int], share: Counts, window: Window) -> Iterator[Cell]:
    """One piece: as tokens, as steps, or whole, whatever there is room for."""
    first, end = piece
    start, stop = grid.starts[first], grid.ends[end - 1]
    if share == NOTHING:
        yield Cell(slot, start, stop, RESTING, NOTHING)
        return
    steps, tokens = grid.repeats[end] - grid.repeats[first], sum(share)
    if window.single and (stop - start) / steps >= TOKEN_WIDTH * window.pixel:
        for at in range(first, end):
            repeats = grid.steps[at].repeats
            begin, length = grid.starts[at], (grid.ends[at] - grid.starts[at]) / repeats
            alone = length / tokens >= TOKEN_WIDTH * window.pixel
            for repeat in range(repeats):
                yield from _divided(slot, begin + repeat * length, length, share, alone=alone)
    else:
        yield from _divided(slot, start, stop - start, tuple(count * steps for count in share), alone=False)


def _divided(slot: int, start: float, length: float, tokens: Sequence[int], *, alone: bool) -> Iterator[Cell]:
    """A rectangle by kind, or with each token alone."""
    whole, before = sum(tokens), 0
    for at, count in enumerate(tokens):
        parts = count if alone else min(count, 1)
        for part in range(parts):
            here, there = before + part * count // parts, before + (part + 1) * count // parts
            counts = [0] * len(tokens)
            counts[at] = there - here
            yield Cell(
                slot,
                start + length * here / whole,
                start + length * there / whole,
                TOKEN_KINDS[at],
                (counts[0], counts[1], counts[2], counts[3], counts[4]),
            )
        before += count


def _merged(several: Iterable[Cell], window: Window) -> Iterator[Cell]:
    """Those narrower than a pixel are drawn as one where they lie in the same pixel."""
    together: list[Cell] = []
    for cell in several:
        narrow = cell.stop - cell.start < window.pixel
        if together and not (narrow and cell.stop - together[0].start < window.pixel):
            yield _joined(together)
            together = []
        if narrow:
            together.append(cell)
        else:
            yield cell
    if together:
        yield _joined(together)


def _joined(several: Sequence[Cell]) -> Cell:
    if len(several) == 1:
        return several[0]
    times: dict[str, float] = {}
    for cell in several:
        times[cell.kind] = times.get(cell.kind, 0) + cell.stop - cell.start
    kind = max(times, key=times.__getitem__)
    tokens = total(cell.tokens for cell in several)
    return Cell(several[0].slot, several[0].start, several[-1].stop, kind, tokens)
