"""What is to be best, and which limits must hold meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias, get_args

from chairlift.advisor.evaluate.outcome import Latency, Outcome
from chairlift.core.errors import ConfigError
from chairlift.core.request import Nanoseconds
from chairlift.records.client_rates import Limits

Measure: TypeAlias = Literal["ttft", "itl", "e2e"]
"""Time to first token, between tokens, end to end; as a client measures them (docs/metrics.md)."""
MEASURES: Final[tuple[Measure, ...]] = get_args(Measure)
STATISTICS: Final = ("mean", "p50", "p90", "p99")
CAPACITY: Final = "capacity"
"""The highest rate of the load at which every limit holds: no figure of one run, so only a search over rates has it."""
OBJECTIVES: Final = ("throughput", "goodput", *(f"{which}-{what}" for what in MEASURES for which in STATISTICS))
"""What can be asked to be best: output tokens a second; requests a second that met every limit; or a latency."""
HEADROOM: Final = 0.02
"""What the whole of a limit is worth, as a share of the objective: of settings that are equally good, as they are where
the load's rate decides the throughput, those are better that leave more room below the limits."""
WORDS: Final = {"ttft": "time to first token", "itl": "time between tokens", "e2e": "end to end"}


class Seen(Protocol):
    """What clients saw of a run, simulated or real."""

    @property
    def tokens_per_second(self) -> float: ...

    @property
    def requests_per_second(self) -> float: ...

    @property
    def ttft(self) -> Latency | None: ...

    @property
    def itl(self) -> Latency | None: ...

    @property
    def e2e(self) -> Latency | None: ...

    @property
    def met(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Reached:
    """A limit, and what came of it."""

    name: str
    """Such as `p99 time between tokens`."""
    flag: str
    value: float | None
    """s; None where nobody outside could observe it."""
    limit: float
    """s."""
    margin: float = 0.0
    """Share of the limit that must be left."""

    @property
    def ratio(self) -> float:
        """Value / what may be used of the limit: at most 1 is met. What cannot be observed is not met."""
        return float("inf") if self.value is None else self.value / (self.limit * (1 - self.margin))


@dataclass(frozen=True, slots=True)
class Targets:
    """What is wanted."""

    objective: str = "throughput"
    """One of OBJECTIVES."""
    ttft_p99: Nanoseconds | None = None
    """Longest p99 of the time to first token."""
    itl_p99: Nanoseconds | None = None
    """Longest p99 of the time between tokens."""
    e2e_p99: Nanoseconds | None = None
    """Longest p99 from when a request is due to the end of its answer."""
    margin: float = 0.0
    """Share of each limit that must be left, since device models are off and machines vary: 0.1 keeps a p99 of 500 ms
    below 450."""

    def __post_init__(self) -> None:
        """Raises ConfigError on a target that cannot be."""
        if self.objective not in (*OBJECTIVES, CAPACITY):
            raise ConfigError(f"--target is {self.objective!r}; it must be one of {', '.join(OBJECTIVES)}.")
        if not 0 <= self.margin < 1:
            raise ConfigError(f"--margin is {self.margin:g}; it is a share of the limits, at least 0 and below 1.")
        for measure, limit in self._limits():
            if limit < 1:
                raise ConfigError(f"--{measure}-p99 is {limit} ns; it must be positive.")
        if self.objective in ("goodput", CAPACITY) and self.per_request is None:
            raise ConfigError(f"--target {self.objective} needs limits: --ttft-p99, --itl-p99 or --e2e-p99.")

    @property
    def higher_is_better(self) -> bool:
        return self.objective in ("throughput", "goodput", CAPACITY)

    @property
    def unit(self) -> str:
        return {"throughput": "tokens/s", "goodput": "requests/s", CAPACITY: "requests/s"}.get(self.objective, "s")

    @property
    def words(self) -> str:
        """The objective for people."""
        if self.objective == "throughput":
            return "output tokens/s"
        if self.objective == "goodput":
            return "requests/s that met every limit"
        if self.objective == CAPACITY:
            return "requests/s that can come before a limit breaks"
        which, _, what = self.objective.partition("-")
        return f"{which} {WORDS[what]}"

    @property
    def needs_streams(self) -> bool:
        """Whether first tokens or the time between tokens matter, so that results must not be held back."""
        return bool(self.ttft_p99 or self.itl_p99) or self.objective.endswith(("ttft", "itl"))

    @property
    def per_request(self) -> Limits | None:
        """The limits as goodput has them: of each request. Between tokens it is the request's mean."""
        if not any(True for _ in self._limits()):
            return None
        ttft, tpot, whole = (
            None if limit is None else max(1, round(limit * (1 - self.margin)))
            for limit in (self.ttft_p99, self.itl_p99, self.e2e_p99)
        )
        return Limits(ttft=ttft, tpot=tpot, end_to_end=whole)

    def value(self, figures: Seen) -> float | None:
        """The objective's; None where it cannot be observed. Of capacity it is the throughput at the rate there was."""
        if self.objective in ("throughput", CAPACITY):
            return figures.tokens_per_second
        if self.objective == "goodput":
            return None if figures.met is None else figures.met * figures.requests_per_second
        which, _, what = self.objective.partition("-")
        latency: Latency | None = getattr(figures, what)
        return None if latency is None else latency.of(which)

    def reached(self, figures: Seen) -> Iterator[Reached]:
        """Every limit and what came of it; none for goodput, which counts them per request."""
        if self.objective == "goodput":
            return
        for measure, limit in self._limits():
            latency: Latency | None = getattr(figures, measure)
            value = None if latency is None else latency.p99
            yield Reached(f"p99 {WORDS[measure]}", f"--{measure}-p99", value, limit / 1e9, self.margin)

    def violation(self, figures: Seen) -> float:
        """Of the limit that is broken worst, value / limit; at most 1 when all are met."""
        return max((one.ratio for one in self.reached(figures)), default=0.0)

    def rank(self, outcome: Outcome) -> tuple[int, float]:
        """The larger the better: all limits met, by the objective less what is spent of the limits; then the least
        violated; then what cannot run.
        """
        figures = outcome.figures
        if figures is None:
            return (0, 0.0)
        value = self.value(figures)
        if (worst := self.violation(figures)) > 1 or value is None:
            return (1, -worst)
        spent = HEADROOM * worst
        return (2, value * (1 - spent) if self.higher_is_better else -value * (1 + spent))

    def meets(self, outcome: Outcome) -> bool:
        """Whether it runs and keeps every limit."""
        return self.rank(outcome)[0] == 2

    def _limits(self) -> Iterator[tuple[Measure, Nanoseconds]]:
        for measure in MEASURES:
            limit: Nanoseconds | None = getattr(self, f"{measure}_p99")
            if limit is not None:
                yield measure, limit


def default_objective(*, waits_for_the_target: bool, limits: bool) -> str:
    """What is meant where nobody says: throughput where the load takes what it can get (everything is there, or users
    wait for answers), or where limits say what is good enough; else the mean time that a user waits.
    """
    return "throughput" if waits_for_the_target or limits else "mean-e2e"
