"""Few repeats, honestly: intervals for a mean and for the ratio of two things that were measured side by side.

Two settings are compared by their ratio, pair by pair (each pair ran in the same round, on the same load), on
logarithms: the geometric mean of the ratios, and Student's t interval around it at 95%. It assumes that the logarithms
are about normal, which with few repeats nobody can check; the sign test, which assumes nothing, cannot reach 95% with
fewer than six pairs. An interval that holds 1 is a difference inside the noise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

CONFIDENCE: Final = 0.95
METHOD: Final = (
    "Differences are geometric means of the ratios of runs that took turns on the same load, with Student's t interval "
    "on their logarithms (95%, paired by round). An interval that holds 1 is inside the noise."
)

Finding = Literal["higher", "lower", "inside the noise", "not known"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A middle, and where the true one lies at 95% confidence."""

    middle: float
    low: float | None
    """None with a single value: nothing is known of the noise."""
    high: float | None
    count: int


@dataclass(frozen=True, slots=True)
class Ratio(Interval):
    """One thing over another, paired."""

    @property
    def finding(self) -> Finding:
        """Whether the first is higher than the second, as far as can be told."""
        if self.low is None or self.high is None:
            return "not known"
        if self.low > 1:
            return "higher"
        return "lower" if self.high < 1 else "inside the noise"

    def __str__(self) -> str:
        """For people: `1.52 times [1.31, 1.77]`."""
        if self.low is None or self.high is None:
            return f"{_digits(self.middle)} times (one run: no interval)"
        return f"{_digits(self.middle)} times [{_digits(self.low)}, {_digits(self.high)}]"


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean and Student's t interval around it.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a mean needs at least one value.")
    middle = statistics.fmean(values)
    if len(values) == 1:
        return Interval(middle, None, None, 1)
    reach = _reach(values)
    return Interval(middle, middle - reach, middle + reach, len(values))


def paired_ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """The first over the second, pair by pair.

    Raises:
        ValueError: there are no pairs, the numbers differ, or a value is not positive: a ratio needs two amounts.
    """
    if len(above) != len(below) or not above:
        raise ValueError(f"{len(above)} and {len(below)} values make no pairs.")
    if min(*above, *below) <= 0:
        raise ValueError("a ratio of logarithms needs positive values.")
    logs = [math.log(one / other) for one, other in zip(above, below, strict=True)]
    middle = statistics.fmean(logs)
    if len(logs) == 1:
        return Ratio(math.exp(middle), None, None, 1)
    reach = _reach(logs)
    return Ratio(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach), len(logs))


def _digits(value: float) -> str:
    """Two decimals, and two digits that count of what is small."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _reach(values: Sequence[float]) -> float:
    """Half the width of the interval of a mean."""
    return student_t(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def student_t(freedom: int) -> float:
    """The value that Student's t with so many degrees of freedom exceeds with probability 0.025.

    Found by bisection on the distribution function, which for whole degrees of freedom is a finite sum (Abramowitz and
    Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4).

    Raises:
        ValueError: there is no freedom.
    """
    if freedom < 1:
        raise ValueError("Student's t needs a degree of freedom.")
    low, high = 0.0, 20.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < CONFIDENCE else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """Probability of a value between -t and t."""
    theta = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(theta), math.sin(theta)
    odd = freedom % 2 == 1
    term, total = (cosine, cosine) if odd else (1.0, 1.0)
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    if not odd:
        return sine * total
    return 2 / math.pi * (theta + (sine * total if freedom > 1 else 0.0))
