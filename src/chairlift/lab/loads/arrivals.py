"""When requests (or sessions) start.

All open processes are one thing: a renewal process of rate 1 whose gaps have a given coefficient of variation, read
through the cumulative rate. Gap k ends at E(k) = g(1) + ... + g(k) in "expected requests"; the request is due when
the cumulative rate reaches E(k). The first one is due at 0, so that no run begins with an empty wait.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from chairlift.core.errors import ConfigError
from chairlift.core.request import Nanoseconds
from chairlift.lab.loads.delays import Delay, FixedDelay
from chairlift.lab.loads.draws import Draws, exponential, gamma
from chairlift.lab.loads.units import SECOND, seconds

LEAST_CV: Final = 1e-6
"""Gaps more even than this are made even: no clock would tell the difference."""

LEAST_PER_CYCLE: Final = 0.001
"""Requests expected in an on and an off phase; below, going through the phases would take longer than the load."""

TraceFormat = Literal["auto", "azure", "mooncake", "burstgpt", "bailian", "own"]


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """N users, each with one request at a time: whoever has an answer thinks and takes the next request."""

    KIND: ClassVar[str] = "closed"

    users: int
    """How many requests are in flight at most."""
    think: Delay = FixedDelay()  # noqa: RUF009 - immutable
    """From an answer's end to the user's next request."""
    ramp_up: Nanoseconds = 0
    """The users start evenly spread over this, instead of all at once."""

    def __post_init__(self) -> None:
        if self.users < 1:
            raise ConfigError(f"users is {self.users}; at least one is needed.")


@dataclass(frozen=True, slots=True)
class Constant:
    """Equal gaps."""

    KIND: ClassVar[str] = "constant"

    rate: float
    """Requests a second."""

    def __post_init__(self) -> None:
        _check_rate(self.rate, "rate")

    def starts(self, draws: Draws) -> Iterator[Nanoseconds]:  # noqa: ARG002 - the processes are called alike
        for number in itertools.count():
            yield round(number * SECOND / self.rate)  # from the start, so that rounding does not add up


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent users: exponential gaps, whose coefficient of variation is 1."""

    KIND: ClassVar[str] = "poisson"

    rate: float
    """Requests a second, on average."""

    def __post_init__(self) -> None:
        _check_rate(self.rate, "rate")

    def starts(self, draws: Draws) -> Iterator[Nanoseconds]:
        for expected in _renewals(draws, 1):
            yield round(expected * SECOND / self.rate)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gaps of a chosen unevenness: below 1 they are more regular than Poisson's, above 1 they come in clumps."""

    KIND: ClassVar[str] = "gamma"

    rate: float
    """Requests a second, on average."""
    cv: float
    """Standard deviation of the gaps over their mean."""

    def __post_init__(self) -> None:
        _check_rate(self.rate, "rate")
        _check_cv(self.cv)

    def starts(self, draws: Draws) -> Iterator[Nanoseconds]:
        for expected in _renewals(draws, self.cv):
            yield round(expected * SECOND / self.rate)


@dataclass(frozen=True, slots=True)
class Burst:
    """Many at the same instant, once or again and again."""

    KIND: ClassVar[str] = "burst"

    size: int
    """Requests in a burst."""
    every: Nanoseconds | None = None
    """From one burst to the next. Absent: there is one burst."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"size is {self.size}; a burst has at least one request.")
        if self.every is not None and self.every < 1:
            raise ConfigError(f"every is {self.every} ns; it must be positive, or absent for a single burst.")

    def starts(self, draws: Draws) -> Iterator[Nanoseconds]:  # noqa: ARG002 - the processes are called alike
        for number in itertools.count() if self.every is not None else range(1):
            yield from itertools.repeat(number * (self.every or 0), self.size)


@dataclass(frozen=True, slots=True)
class Ramp:
    """The rate goes evenly from one value to another, and stays there."""

    KIND: ClassVar[str] = "ramp"

    start_rate: float
    """Requests a second at the beginning. May be 0."""
    end_rate: float
    """Requests a second from `over` on. May be 0, then the load ends there."""
    over: Nanoseconds
    """How long the change takes."""
    cv: float = 1.0
    """Unevenness of the gaps: 0 even, 1 as Poisson."""

    def __post_init__(self) -> None:
        for name in ("start_rate", "end_rate"):
            if getattr(self, name):
                _check_rate(getattr(self, name), name)
        if self.start_rate == self.end_rate == 0:
            raise ConfigError("end_rate is 0, and start_rate too: one of them must be positive.")
        _check_positive(self.over, "over")
        _check_cv(self.cv)

    def starts(self, draws: Draws) -> Iterator[Nanoseconds]:
        over = seconds(self.over)
        slope = (self.end_rate - self.start_rate) / over
        climbed = (self.start_rate + self.end_rate) / 2 * over
        for expected in _renewals(draws, self.cv):
            if expected <= climbed:  # the root of start_rate * t + slope / 2 * t² = expected that loses no digits
                root = math.sqrt(max(0.0, self.start_rate**2 + 2 * slope * expected))
                yield round(2 * expected / (self.start_rate + root) * SECOND) if expected else 0
            elif self.end_rate:
                yield round((over + (expected - climbed) / self.end_rate) * SECOND)
            else:
                return


@dataclass(frozen=True, slots=True)
class OnOff:
    """Phases of traffic and phases of (almost) none, in turn."""

    KIND: ClassVar[str] = "on-off"

    rate: float
    """Requests a second while on."""
    on: Nanoseconds
    """How long a phase of traffic lasts."""
    off: Nanoseconds
    """How long a phase without lasts."""
    off_rate: float = 0.0
    """Requests a second while off."""
    phases: Literal["fixed", "exponential"] = "fixed"
    """Whether on and off are the phases' lengths, or the means of exponential ones."""
    cv: float = 1.0
    """Unevenness of the gaps within: 0 even, 1 as Poisson."""

    def __post_init__(self) -> None:
        _check_rate(self.rate, "rate")
        _check_positive(self.on, "on")
        _check_positive(self.off, "off")
        _check_cv(self.cv)
        if self.off_rate:
            _check_rate(self.off_rate, "off_rate")
        expected = seconds(self.on) * self.rate + seconds(self.off) * self.off_rate
        if expected < LEAST_PER_CYCLE:
            raise ConfigError(
                f"on is {seconds(self.on):g}s: at rate {self.rate:g} only {expected:.2g} requests are expected in an "
                f"on and an off phase, too few for phases to show. Lengthen them (to {LEAST_PER_CYCLE} requests), "
                "or take a poisson process."
            )

    def starts(self, draws: Draws) -> Iterator[Nanoseconds]:
        phases = self._phases(draws)
        begin, (length, rate), passed = 0.0, next(phases), 0.0
        for expected in _renewals(draws, self.cv):
            while expected > passed + length * rate:
                begin, passed = begin + length, passed + length * rate
                length, rate = next(phases)
            yield round((begin + (expected - passed) / rate) * SECOND) if rate else round(begin * SECOND)

    def _phases(self, draws: Draws) -> Iterator[tuple[float, float]]:
        """Length in seconds and rate, of phase after phase."""
        for number in itertools.count():
            length, rate = (self.off, self.off_rate) if number % 2 else (self.on, self.rate)
            stretch = exponential(draws.uniform("phases", number)) if self.phases == "exponential" else 1.0
            yield seconds(length) * stretch, rate


@dataclass(frozen=True, slots=True)
class TraceReplay:
    """As it was recorded."""

    KIND: ClassVar[str] = "trace"

    file: str
    """The trace; a relative path starts at the load's file."""
    format: TraceFormat = "auto"
    """Who wrote it. auto looks at the column names."""
    start: Nanoseconds = 0
    """Leave out what was recorded before this, counted from the first row; the rest moves to the front."""
    spread: bool = True
    """Spread requests inside their tick where the recorded times are quantised; otherwise each tick is a burst."""
    follow: bool = False
    """A session's turn waits for the end of the turn before, if that comes later than its recorded time; and where the
    trace doesn't say what prompts share, a turn extends the prompt and answer before it, if it is long enough to."""


OpenProcess = Constant | Poisson | Gamma | Burst | Ramp | OnOff
Arrivals = ClosedLoop | OpenProcess | TraceReplay


def _renewals(draws: Draws, cv: float) -> Iterator[float]:
    """0, then the ends of gaps with mean 1 and the given coefficient of variation."""
    uniforms = draws.uniforms("gaps")
    total = 0.0
    while True:
        yield total
        if cv < LEAST_CV:
            total += 1.0
        elif cv == 1:
            total += exponential(next(uniforms))
        else:
            total += gamma(cv**-2, uniforms)


def _check_positive(value: float, name: str) -> None:
    if value <= 0:
        raise ConfigError(f"{name} is {value:g}; it must be positive.")


def _check_rate(rate: float, name: str) -> None:
    if not 1e-9 <= rate <= 1e9:
        raise ConfigError(f"{name} is {rate:g}; it is in requests a second, above 0 and at most 1e9.")


def _check_cv(cv: float) -> None:
    if not 0 <= cv <= 100:
        raise ConfigError(f"cv is {cv:g}; it is between 0 (even gaps) and 100 (1 is Poisson's).")
