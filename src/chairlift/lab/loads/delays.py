"""How long a user thinks between an answer and the next prompt, in nanoseconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from chairlift.core.errors import ConfigError
from chairlift.core.request import Nanoseconds
from chairlift.lab.loads.draws import exponential, normal
from chairlift.lab.loads.lengths import LARGEST_LOG


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """Always the same. A bare duration in a load's file means this."""

    KIND: ClassVar[str] = "fixed"
    BARE: ClassVar[str] = "time"

    time: Nanoseconds = 0
    """The delay."""

    def delay(self, uniform: float) -> Nanoseconds:  # noqa: ARG002 - the distributions are called alike
        return self.time


@dataclass(frozen=True, slots=True)
class UniformDelay:
    """Anything from min to max, equally likely."""

    KIND: ClassVar[str] = "uniform"

    min: Nanoseconds
    """The shortest."""
    max: Nanoseconds
    """The longest."""

    def __post_init__(self) -> None:
        if self.max < self.min:
            raise ConfigError(f"max is {self.max} ns, below min {self.min} ns; raise the first or lower the second.")

    def delay(self, uniform: float) -> Nanoseconds:
        return self.min + int(uniform * (self.max - self.min + 1))


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """Memoryless: most are short, some are long."""

    KIND: ClassVar[str] = "exponential"

    mean: Nanoseconds
    """Mean delay."""

    def delay(self, uniform: float) -> Nanoseconds:
        return round(self.mean * exponential(uniform))


@dataclass(frozen=True, slots=True)
class LogNormalDelay:
    """The logarithm is normal: how people's reading and typing is most often modelled."""

    KIND: ClassVar[str] = "lognormal"

    median: Nanoseconds
    """Half of the delays are below."""
    sigma: float
    """Standard deviation of the logarithm."""

    def __post_init__(self) -> None:
        if self.sigma < 0:
            raise ConfigError(f"sigma is {self.sigma}; it must not be negative.")

    def delay(self, uniform: float) -> Nanoseconds:
        return round(self.median * math.exp(min(self.sigma * normal(uniform), LARGEST_LOG)))


Delay = FixedDelay | UniformDelay | ExponentialDelay | LogNormalDelay
