"""What the numbers in a load's description mean. Exact formulas over all values; nothing is estimated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chairlift.lab.loads.units import SECOND

LEAST_WINDOWS = 10
"""An index of dispersion over fewer windows says nothing."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of a whole number of tokens per request."""

    mean: float
    variance: float
    """Mean square distance from the mean, in tokens²: of these values, not of what they may be a sample of."""
    cv2: float
    """variance / mean²."""
    min: int
    p50: int
    p90: int
    p99: int
    max: int
    total: int

    @classmethod
    def of(cls, values: Sequence[int]) -> Distribution:
        """Of at least one value. A percentile is the smallest value that at least so many per cent do not exceed."""
        ordered = np.sort(np.asarray(values, dtype=np.int64))
        mean, variance = float(ordered.mean()), float(ordered.var())

        def percentile(share: float) -> int:
            return int(ordered[max(0, math.ceil(share * len(ordered)) - 1)])

        return cls(
            mean=mean,
            variance=variance,
            cv2=variance / mean**2 if mean else 0.0,
            min=int(ordered[0]),
            p50=percentile(0.5),
            p90=percentile(0.9),
            p99=percentile(0.99),
            max=int(ordered[-1]),
            total=int(ordered.sum()),
        )


def rate(times: Sequence[int]) -> float | None:
    """Starts a second: gaps over the time between first and last. None when they are at one instant."""
    span = times[-1] - times[0] if len(times) else 0
    return (len(times) - 1) * SECOND / span if span else None


def cv_of_gaps(times: Sequence[int]) -> float | None:
    """Standard deviation over mean of the gaps between times (ascending). None: fewer than two gaps, or all are 0."""
    gaps = np.diff(_array(times))
    return float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.any() else None


def dispersion(times: Sequence[int], window: int) -> float | None:
    """Index of dispersion of counts: variance over mean of the number of times in each whole window from the first on.

    1 for Poisson arrivals at every window; below 1: more even; above 1: clumped at that time scale. None when there
    are fewer than LEAST_WINDOWS whole windows.
    """
    if not len(times):
        return None
    since = _array(times) - times[0]
    windows = int(since[-1]) // window
    if windows < LEAST_WINDOWS:
        return None
    counts = np.bincount(since[since < windows * window] // window, minlength=windows)
    return float(counts.var() / counts.mean())


def peak_overlap(times: Sequence[int], durations: Sequence[int]) -> int:
    """Most intervals [time, time + duration) open at once; those of duration 0 count at their instant."""
    starts = np.sort(_array(times))
    ends = np.sort(_array(times) + np.maximum(_array(durations), 1))
    open_at_start = np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="right")
    return int(open_at_start.max()) if len(starts) else 0


def _array(values: Sequence[int]) -> NDArray[np.int64]:
    return np.asarray(values, dtype=np.int64)
