"""What the numbers mean: each metric is defined once, here, and its definition travels with every value of it.

Percentiles interpolate linearly between the two nearest ranks of the sorted values (Hyndman and Fan's definition 7,
what NumPy and spreadsheets do by default).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from chairlift.core.request import FinishReason, Nanoseconds
from chairlift.records.schema import RequestRecord

T = TypeVar("T")
"""The record that a metric is read from: the engine's RequestRecord or a client's RequestTrace."""

_SECOND = 1e9
_NANOSECONDS: Final[Mapping[str, float]] = {"s": 1e9, "ms": 1e6}
"""Nanoseconds in a unit; values in any other unit are taken as they are."""
_ANSWERED = (FinishReason.STOP, FinishReason.LENGTH)
_PERCENTILES = (50, 90, 95, 99)

NOT_OBSERVABLE = "not observable"
"""What is shown instead of a number where results are held back, so that nobody outside could measure it."""


@dataclass(frozen=True, slots=True)
class Metric(Generic[T]):
    """One quantity that requests have."""

    name: str
    unit: str
    """s or ms: values are nanoseconds and are divided. Any other: values are in it already."""
    starts: str
    """When its clock starts."""
    stops: str
    """When it stops."""
    population: str
    """Which requests have it."""
    values: Callable[[T], Sequence[float] | None]
    """A request's values; empty where it is not of the population; None where it is and nobody could observe it."""


ENOUGH: Final[Mapping[float, int]] = {50: 1, 90: 10, 95: 20, 99: 100, 99.9: 1000}
"""Values from which on a percentile lies below the largest one, and says more than the maximum. With fewer it
is reckoned as it is defined, and not shown to people."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The values of one metric in one run."""

    metric: Metric[Any]
    count: int
    """Values."""
    requests: int
    """Requests that have them."""
    unobservable: int
    """Requests of the population whose values nobody outside could observe; they are not in the figures."""
    mean: float | None
    minimum: float | None
    maximum: float | None
    percentiles: Mapping[float, float]
    """By percent; empty without values."""

    def told(self, percent: float) -> float | None:
        """A percentile for people; None where there are too few values for it."""
        return self.percentiles.get(percent) if self.count >= ENOUGH[percent] else None

    @property
    def observable(self) -> bool:
        """Whether the figures speak for the whole population."""
        return self.unobservable == 0

    def __str__(self) -> str:
        """For people: p50 and p99, or why not."""
        if self.mean is None:
            return NOT_OBSERVABLE if self.unobservable else "none"
        p50, p99 = self.percentiles[50], self.percentiles[99]
        return f"mean {self.mean:.3f} {self.metric.unit}, p50 {p50:.3f}, p99 {p99:.3f}"


@dataclass(frozen=True, slots=True)
class Rate:
    """Something counted, over the time it took."""

    name: str
    unit: str
    count: int
    seconds: float
    definition: str
    unknown: int = 0
    """Requests that belong to it and whose count nobody told."""

    @property
    def value(self) -> float | None:
        """Count / seconds; None for a run without length, and where a part of the count is unknown."""
        return self.count / self.seconds if self.seconds > 0 and not self.unknown else None


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Linear interpolation at rank percent / 100 x (n - 1) of ascending values; at least one."""
    rank = percent / 100 * (len(ordered) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


def distribution(metric: Metric[T], records: Iterable[T], percents: Sequence[float] = _PERCENTILES) -> Distribution:
    """Measure one metric over a run's requests, in its unit."""
    divisor = _NANOSECONDS.get(metric.unit, 1.0)
    collected: list[float] = []
    requests = unobservable = 0
    for record in records:
        values = metric.values(record)
        if values is None:
            unobservable += 1
        elif values:
            requests += 1
            collected += [value / divisor for value in values]
    collected.sort()
    return Distribution(
        metric=metric,
        count=len(collected),
        requests=requests,
        unobservable=unobservable,
        mean=math.fsum(collected) / len(collected) if collected else None,
        minimum=collected[0] if collected else None,
        maximum=collected[-1] if collected else None,
        percentiles={percent: percentile(collected, percent) for percent in {*percents, 50, 99}} if collected else {},
    )


def output_tokens_per_second(records: Sequence[RequestRecord]) -> Rate:
    """The run's output, counted for whoever got an answer, over the time from the first arrival to the last release."""
    answered = [record for record in records if record.finish_reason in _ANSWERED]
    span = max((r.released for r in records), default=0) - min((r.arrival for r in records), default=0)
    return Rate(
        name="output_tokens_per_second",
        unit="tokens/s",
        count=sum(record.output_tokens for record in answered),
        seconds=span / _SECOND,
        definition="output tokens of answered requests / time from the first arrival to the last result's release",
    )


def _answered(record: RequestRecord, start: Nanoseconds | None, stop: Nanoseconds | None) -> Sequence[Nanoseconds]:
    """From start to stop, of a request that was answered and has both moments."""
    if record.finish_reason not in _ANSWERED or start is None or stop is None:
        return ()
    return (stop - start,)


def _between(record: RequestRecord) -> Sequence[Nanoseconds] | None:
    if record.finish_reason not in _ANSWERED or record.output_tokens < 2:
        return ()
    return record.gaps if record.streamed else None


_ANSWERED_WORDS = "requests answered (finish reason stop or length); others are counted beside them, never inside"

TIME_TO_FIRST_TOKEN: Metric[RequestRecord] = Metric(
    "time_to_first_token",
    unit="s",
    starts="the moment the request was due (its arrival), queueing included",
    stops="the release of its first token; where results leave together that is the end of the batch",
    population=_ANSWERED_WORDS,
    values=lambda record: _answered(record, record.arrival, record.first_token_released),
)
TIME_TO_FIRST_TOKEN_COMPUTED: Metric[RequestRecord] = Metric(
    "time_to_first_token_computed",
    unit="s",
    starts="the moment the request was due (its arrival), queueing included",
    stops="the commit of the step that computed its first token, released or not",
    population=_ANSWERED_WORDS,
    values=lambda record: _answered(record, record.arrival, record.first_token_computed),
)
TIME_BETWEEN_TOKENS: Metric[RequestRecord] = Metric(
    "time_between_tokens",
    unit="s",
    starts="the release of a token",
    stops="the release of the same request's next token",
    population="each pair of successive tokens of requests answered and streamed; not observable where results are "
    "held back",
    values=_between,
)
END_TO_END: Metric[RequestRecord] = Metric(
    "end_to_end",
    unit="s",
    starts="the moment the request was due (its arrival)",
    stops="the release of its result",
    population=_ANSWERED_WORDS,
    values=lambda record: _answered(record, record.arrival, record.released),
)
QUEUE_TIME: Metric[RequestRecord] = Metric(
    "queue_time",
    unit="s",
    starts="the moment the request was due (its arrival)",
    stops="its first admission: its KV blocks are reserved",
    population="requests that were admitted, however they ended",
    values=lambda record: () if record.admitted is None else (record.admitted - record.arrival,),
)
HELD_BACK: Metric[RequestRecord] = Metric(
    "held_back",
    unit="s",
    starts="the moment the request's last token was computed",
    stops="the release of its result",
    population=_ANSWERED_WORDS,
    values=lambda record: _answered(record, record.finished, record.released),
)

METRICS = (
    TIME_TO_FIRST_TOKEN,
    TIME_TO_FIRST_TOKEN_COMPUTED,
    TIME_BETWEEN_TOKENS,
    END_TO_END,
    QUEUE_TIME,
    HELD_BACK,
)
