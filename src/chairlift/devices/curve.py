"""Integer cost curves, and their exact sums over a run of steps whose length grows evenly.

A device model adds femtoseconds and rounds each step down to whole nanoseconds. A simulator that jumps over n steps
needs the sum of n such roundings, equal to what stepping gives. Every curve here is piecewise of the form
floor((a x k + b) / m) in the step k, whose sum floor_sum() finds in O(log m) instead of O(n).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from chairlift.core.errors import DeviceModelError


class Piece(NamedTuple):
    """A stretch of steps: the curve's value at step k of it is (start + k x step) // divisor."""

    steps: int
    start: int
    step: int
    divisor: int


class Curve(Protocol):
    """A cost as a function of an integer, in integers."""

    def at(self, x: int) -> int:
        """Cost at x >= 0."""
        ...

    def pieces(self, x: int, growth: int, steps: int) -> Iterator[Piece]:
        """The curve along x, x + growth, x + 2 growth, ... for so many steps."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """Proportional: per_unit x x."""

    per_unit: int

    def at(self, x: int) -> int:
        return self.per_unit * x

    def pieces(self, x: int, growth: int, steps: int) -> Iterator[Piece]:
        yield Piece(steps, self.per_unit * x, self.per_unit * growth, 1)


@dataclass(frozen=True, slots=True)
class Table:
    """Points joined by straight lines (not on logarithms), rounded down.

    Below the first point the first value holds; beyond the last the last line goes on, never below zero. Whether one
    may go there is the valid range's business.
    """

    xs: tuple[int, ...]
    """Strictly increasing."""
    ys: tuple[int, ...]
    """Not negative; beside xs."""

    def __post_init__(self) -> None:
        """Raises DeviceModelError when the points are no curve."""
        if len(self.xs) != len(self.ys) or len(self.xs) < 2:
            raise DeviceModelError(
                f"a table has {len(self.xs)} positions and {len(self.ys)} values; it needs as many of both, at least 2."
            )
        if any(left >= right for left, right in zip(self.xs, self.xs[1:], strict=False)):
            raise DeviceModelError(f"a table's positions must rise; they are {self.xs}.")
        if min(self.ys) < 0 or self.xs[0] < 0:
            raise DeviceModelError("a table has a negative position or value.")

    def at(self, x: int) -> int:
        if x <= self.xs[0]:
            return self.ys[0]
        i = min(bisect_right(self.xs, x), len(self.xs) - 1)
        width = self.xs[i] - self.xs[i - 1]
        value = self.ys[i - 1] + (x - self.xs[i - 1]) * (self.ys[i] - self.ys[i - 1]) // width
        return max(0, value)

    def pieces(self, x: int, growth: int, steps: int) -> Iterator[Piece]:
        if growth == 0:
            yield Piece(steps, self.at(x), 0, 1)
            return
        while steps > 0:
            count, piece = self._piece(x, growth, steps)
            yield piece
            x += growth * count
            steps -= count

    def _piece(self, x: int, growth: int, steps: int) -> tuple[int, Piece]:
        """The stretch from x to the end of the line that x is on."""
        if x <= self.xs[0]:
            count = min(steps, (self.xs[0] - x) // growth + 1)
            return count, Piece(count, self.ys[0], 0, 1)
        i = min(bisect_right(self.xs, x), len(self.xs) - 1)
        left, width, rise = self.xs[i - 1], self.xs[i] - self.xs[i - 1], self.ys[i] - self.ys[i - 1]
        start = self.ys[i - 1] * width + (x - left) * rise
        if i < len(self.xs) - 1:
            count = min(steps, (self.xs[i] - 1 - x) // growth + 1)
        elif rise >= 0:
            count = steps
        elif start < width:
            return steps, Piece(steps, 0, 0, 1)
        else:
            # A falling last line reaches zero; from there it stays.
            count = min(steps, start // (-rise * growth) + 1)
        return count, Piece(count, start, rise * growth, width)


def floor_sum(count: int, divisor: int, step: int, start: int) -> int:
    """Sum of (start + k x step) // divisor for k in 0 .. count - 1, in O(log divisor) operations.

    The lattice points under a line, by Euclid's algorithm on its slope (R. Graham, D. Knuth, O. Patashnik: Concrete
    Mathematics, section 3.5). `start` and `step` may be negative; divisor >= 1.
    """
    if count <= 0:
        return 0
    total = 0
    while True:
        # What whole numbers of the slope and the start contribute, and then a line with both in 0 .. divisor - 1.
        slope, step = divmod(step, divisor)
        offset, start = divmod(start, divisor)
        total += slope * (count * (count - 1) // 2) + offset * count
        top = step * count + start
        if top < divisor:
            return total
        # Count the same points by rows instead of columns: rows become columns of the mirrored line.
        count, start = divmod(top, divisor)
        divisor, step = step, divisor


def rounded_sum(pieces: Iterator[Piece], constant: int, divisor: int) -> int:
    """Sum over all steps of (constant + curve) // divisor, each step rounded down by itself.

    floor((c + floor(n / d)) / m) = floor((c x d + n) / (m x d)) for integers, so that both roundings are one.
    """
    return sum(
        floor_sum(piece.steps, divisor * piece.divisor, piece.step, constant * piece.divisor + piece.start)
        for piece in pieces
    )
