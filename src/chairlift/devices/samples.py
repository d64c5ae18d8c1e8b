"""Measured steps, and how well a fit meets them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from chairlift.core.errors import DeviceModelError
from chairlift.core.request import Nanoseconds
from chairlift.devices.shape import StepShape

_NOISY: Final = 0.2
"""A sample whose repeats spread (interquartile range over median) more than this is named."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Measurements of steps of one shape."""

    shape: StepShape
    times: tuple[Nanoseconds, ...]
    """One for each repeat, positive."""
    term: str
    """What it was measured for, such as decode, prefill or mixed: errors are reported by it."""
    label: str = ""
    """How a person would find it in the source; the shape in words when empty."""

    def __post_init__(self) -> None:
        """Raises DeviceModelError without a positive time."""
        if not self.times or min(self.times) <= 0:
            raise DeviceModelError(f"{self.name}: measured times must be positive, and at least one.")

    @property
    def name(self) -> str:
        return self.label or self.shape.describe()

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def spread(self) -> float:
        """Interquartile range over median; 0 with fewer than four repeats."""
        if len(self.times) < 4:
            return 0.0
        low, _, high = statistics.quantiles(self.times, n=4)
        return (high - low) / self.median


@dataclass(frozen=True, slots=True)
class TermError:
    """How well samples of one term are met. Shares, not per cent."""

    samples: int
    mape: float
    """Mean absolute relative error of the fit."""
    left_out: float
    """The same with each sample predicted by a fit without it."""
    worst: float
    """Largest absolute relative error, left out."""


def errors_by_term(
    samples: Sequence[Sample], inside: NDArray[np.float64], left_out: NDArray[np.float64]
) -> dict[str, TermError]:
    """Errors of each term, and of all samples under `all`.

    Args:
        samples: what was measured.
        inside: [samples], absolute relative errors of a fit to all of them.
        left_out: [samples], each by a fit without it.
    """
    terms = np.array([sample.term for sample in samples])
    every = np.ones(len(samples), dtype=bool)
    groups = {term: terms == term for term in dict.fromkeys(terms.tolist())} | {"all": every}
    return {
        term: TermError(int(at.sum()), float(inside[at].mean()), float(left_out[at].mean()), float(left_out[at].max()))
        for term, at in groups.items()
    }


def noisy_samples(samples: Sequence[Sample]) -> tuple[str, ...]:
    """One sentence for each sample whose repeats disagree."""
    return tuple(
        f"{sample.name}: the middle half of {len(sample.times)} repeats spreads over {sample.spread:.0%} of the median."
        for sample in samples
        if sample.spread > _NOISY
    )
