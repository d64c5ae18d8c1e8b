"""How long prompts and answers are, in tokens. Each kind turns one uniform number into a length, by inversion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.draws import exponential, normal

LARGEST_LOG: Final = 40.0
"""Logarithms of lengths and delays are cut here, far beyond anything that can be sent or waited for."""
LONGEST: Final = 10**9
"""Tokens: most of a prompt, an answer or a prefix. Nothing longer can be sent, and sums of lengths stay exact."""


@dataclass(frozen=True, slots=True)
class FixedLength:
    """Always the same. A bare number in a load's file means this."""

    KIND: ClassVar[str] = "fixed"
    BARE: ClassVar[str] = "tokens"

    tokens: int
    """The length."""

    def __post_init__(self) -> None:
        _check_range(self.tokens, None, "tokens")

    def length(self, uniform: float, index: int) -> int:  # noqa: ARG002 - the distributions are called alike
        return self.tokens


@dataclass(frozen=True, slots=True)
class UniformLength:
    """Each whole number from min to max, both included, equally likely."""

    KIND: ClassVar[str] = "uniform"

    min: int
    """The shortest."""
    max: int
    """The longest."""

    def __post_init__(self) -> None:
        _check_range(self.min, self.max)

    def length(self, uniform: float, index: int) -> int:  # noqa: ARG002 - the distributions are called alike
        return self.min + int(uniform * (self.max - self.min + 1))


@dataclass(frozen=True, slots=True)
class LogNormalLength:
    """A long tail to the right: the logarithm is normal. Give median and sigma, or mean and cv."""

    KIND: ClassVar[str] = "lognormal"

    median: float | None = None
    """Half of the lengths are below."""
    sigma: float | None = None
    """Standard deviation of the logarithm. 0.5 is mild; at 1 the p99 is ten times the median."""
    mean: float | None = None
    """Mean length, before min and max cut."""
    cv: float | None = None
    """Standard deviation over mean, before min and max cut."""
    min: int = 1
    """Shorter draws become this."""
    max: int | None = None
    """Longer draws become this."""

    def __post_init__(self) -> None:
        given = [name for name in ("median", "sigma", "mean", "cv") if getattr(self, name) is not None]
        if given not in (["median", "sigma"], ["mean", "cv"]):
            got = " and ".join(given) or "neither"
            raise ConfigError(f"median: a lognormal takes median and sigma, or mean and cv, and no more; given: {got}.")
        for name in given:
            if (value := getattr(self, name)) < 0:
                raise ConfigError(f"{name} is {value:g}; it must not be negative.")
            if value == 0 and name in {"median", "mean"}:
                raise ConfigError(f"{name} is 0; it must be positive.")
        _check_range(self.min, self.max)

    def length(self, uniform: float, index: int) -> int:  # noqa: ARG002 - the distributions are called alike
        if self.median is not None:
            mu, sigma = math.log(self.median), self.sigma or 0.0
        else:
            variance = math.log1p((self.cv or 0.0) ** 2)
            mu, sigma = math.log(self.mean or 1.0) - variance / 2, math.sqrt(variance)
        return _cut(round(math.exp(min(mu + sigma * normal(uniform), LARGEST_LOG))), self.min, self.max)


@dataclass(frozen=True, slots=True)
class BimodalLength:
    """Short ones and long ones, such as seven short to one long: what makes a closed batch wait for its straggler."""

    KIND: ClassVar[str] = "bimodal"

    short: int
    """The length of the many."""
    long: int
    """The length of the few."""
    ratio: str = "7:1"
    """How many short ones to how many long ones."""
    order: Literal["random", "cycle"] = "random"
    """random: each request draws. cycle: exactly `ratio` in turn, the long ones last."""

    def __post_init__(self) -> None:
        _check_range(self.short, None, "short")
        _check_range(self.long, None, "long")
        many, few = self.parts
        if many < 0 or few < 0 or many + few == 0:
            raise ConfigError(f"ratio is {self.ratio!r}; it is two whole numbers with a colon between, such as 7:1.")

    @property
    def parts(self) -> tuple[int, int]:
        """Short ones, long ones; (-1, -1) when the text is no ratio."""
        many, _, few = self.ratio.partition(":")
        return (int(many), int(few)) if many.isdecimal() and few.isdecimal() else (-1, -1)

    def length(self, uniform: float, index: int) -> int:
        many, few = self.parts
        position = index % (many + few) if self.order == "cycle" else uniform * (many + few)
        return self.short if position < many else self.long


@dataclass(frozen=True, slots=True)
class CappedExponentialLength:
    """An exponential, rounded up and cut at a cap: the answers of a model that most often stops early."""

    KIND: ClassVar[str] = "exponential"

    mean: float
    """Mean before rounding and the cap; the description says what is left of it."""
    cap: int
    """Longer draws become this."""
    min: int = 1
    """Shorter draws become this."""

    def __post_init__(self) -> None:
        if not 0 < self.mean <= 1e9:
            raise ConfigError(f"mean is {self.mean:g}; it is above 0 and at most 1e9 tokens.")
        _check_range(self.min, self.cap, "min", "cap")

    def length(self, uniform: float, index: int) -> int:  # noqa: ARG002 - the distributions are called alike
        return _cut(math.ceil(self.mean * exponential(uniform)), self.min, self.cap)


Lengths = FixedLength | UniformLength | LogNormalLength | BimodalLength | CappedExponentialLength


def _cut(length: int, least: int, most: int | None) -> int:
    return max(least, min(length, LONGEST if most is None else most))


def _check_range(least: int, most: int | None, least_name: str = "min", most_name: str = "max") -> None:
    if least < 1:
        raise ConfigError(f"{least_name} is {least}; lengths are at least 1 token.")
    for name, tokens in ((least_name, least), (most_name, most)):
        if tokens is not None and tokens > LONGEST:
            raise ConfigError(f"{name} is {tokens}; lengths are at most {LONGEST:,} tokens.")
    if most is not None and most < least:
        raise ConfigError(f"{most_name} is {most}, below {least_name} {least}; raise the first or lower the second.")
