"""Paired comparisons: ratios of runs that took turns, their median, and how sure it is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MedianInterval:
    """A median and the sign test's interval around it."""

    median: float
    low: float
    high: float
    confidence: float
    """Probability that an interval made like this one covers the true median, whatever the distribution."""
    count: int

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def median_interval(values: Sequence[float], confidence: float = 0.95) -> MedianInterval:
    """The narrowest interval between order statistics that covers the median with at least this confidence.

    Between the k-th smallest and the k-th largest of n values the coverage is 1 - 2 P(Binomial(n, 1/2) < k): the
    sign test, inverted. Fewer than six values cannot reach 0.95; all of their range is given then, with the confidence
    that it has.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a median needs at least one value.")
    ordered = sorted(values)
    n = len(ordered)
    k = 1
    while 2 * (k + 1) <= n and _coverage(n, k + 1) >= confidence:
        k += 1
    return MedianInterval(statistics.median(ordered), ordered[k - 1], ordered[n - k], _coverage(n, k), n)


def _coverage(n: int, k: int) -> float:
    return 1 - 2 * sum(math.comb(n, i) for i in range(k)) / 2.0**n


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Pair by pair, above / below.

    Raises:
        ValueError: the numbers of runs differ.
    """
    return [one / other for one, other in zip(above, below, strict=True)]
