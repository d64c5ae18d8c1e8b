"""Whether a run was in a steady state: its requests in flight over time, growth, and Little's law.

Requests are in flight from the moment the client begins with them to the moment their outcome is known, warm-up
included: this is what the target had to bear.

    window      the longest span at 80% or more of the peak; dips shorter than 1% of the run do not end it, since a
                closed loop of one user has one after each answer
    stationary  sending time (first to last request sent) is cut into quarters, the first is left out, and the last is
                compared to the second. In flight grows where its time mean is higher by a fifth, by one request, and
                by the square root of the earlier mean (what chance does to independent arrivals). Time to first token
                from schedule grows where the median is higher by a fifth and Spearman's rank correlation r with the
                due time over n requests is significant: r sqrt(n - 1) > 3. Too few to tell: under 8 in a quarter.
    little      N = X R (J. Little, Operations Research 9, 1961): requests in flight as samples saw them, against
                requests a second times their mean time in flight, from the traces. They are counted independently, so
                that a difference above a tenth (and above half a request) means lost traces or a wrong clock.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from chairlift.core.request import Nanoseconds
from chairlift.records.client import HealthSample, RequestTrace

PEAK_SHARE: Final = 0.8
DIP: Final = 0.01
"""Share of the run's length."""
_GROWTH: Final = 1.2
_SIGNIFICANT: Final = 3.0
_FEWEST: Final = 8
_FEWEST_SAMPLES: Final = 5
_LITTLE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Level:
    """Requests in flight from `start` to `stop`."""

    start: Nanoseconds
    stop: Nanoseconds
    in_flight: int


@dataclass(frozen=True, slots=True)
class Window:
    """The longest span at PEAK_SHARE or more of the peak."""

    start: Nanoseconds
    stop: Nanoseconds
    peak: int
    """Most requests in flight in the run."""
    share: float
    """Of the run's length."""


@dataclass(frozen=True, slots=True)
class Stationarity:
    """Whether something still grew while requests were sent. None: too few to tell."""

    ttft_grows: bool | None
    in_flight_grows: bool | None
    ttft: tuple[float, float] | None
    """s: medians of the second quarter and the last."""
    in_flight: tuple[float, float] | None
    """Time means of the second quarter and the last."""

    @property
    def stationary(self) -> bool | None:
        """False if one of them grows; None if neither is known to, and one cannot be told."""
        if self.ttft_grows or self.in_flight_grows:
            return False
        return None if self.ttft_grows is None or self.in_flight_grows is None else True


@dataclass(frozen=True, slots=True)
class TtftGrowth:
    """Of the time to first token. None: too few to tell."""

    grows: bool | None
    medians: tuple[float, float] | None
    """Seconds: of the second quarter, and of the last."""


@dataclass(frozen=True, slots=True)
class LittleCheck:
    """Both sides of Little's law."""

    sampled: float | None
    """N: mean requests in flight over the client's samples; None with fewer than 5."""
    expected: float | None
    """X R, from the traces over the time that the samples cover."""
    holds: bool | None
    """None: one side is missing."""


def levels(traces: Iterable[RequestTrace]) -> list[Level]:
    """Requests in flight over time, from the first sent to the last end; successive spans join."""
    changes: dict[Nanoseconds, int] = {}
    for trace in traces:
        if trace.sent is not None:
            changes[trace.sent] = changes.get(trace.sent, 0) + 1
            changes[trace.end] = changes.get(trace.end, 0) - 1
    found, current = [], 0
    for start, stop in itertools.pairwise(sorted(changes)):
        current += changes[start]
        found.append(Level(start, stop, current))
    return found


def window(over: Sequence[Level]) -> Window | None:
    """The steady-state window, the earliest of equally long ones; None where nothing was in flight."""
    if not over:
        return None
    peak = max(level.in_flight for level in over)
    if not peak:
        return None
    length = over[-1].stop - over[0].start
    spans: list[list[Nanoseconds]] = []
    for level in over:
        if level.in_flight < PEAK_SHARE * peak:
            continue
        if spans and level.start - spans[-1][1] <= DIP * length:
            spans[-1][1] = level.stop
        else:
            spans.append([level.start, level.stop])
    start, stop = max(spans, key=lambda span: span[1] - span[0])
    return Window(start, stop, peak, (stop - start) / length)


def time_mean(over: Sequence[Level], start: float, stop: float) -> float:
    """Mean requests in flight from start to stop; nothing is in flight outside the levels."""
    area = sum(max(0.0, min(stop, one.stop) - max(start, one.start)) * one.in_flight for one in over)
    return area / (stop - start)


def stationarity(traces: Sequence[RequestTrace], over: Sequence[Level]) -> Stationarity:
    """See the module. Traces are those that count; levels are of all."""
    sent = [trace.sent for trace in traces if trace.sent is not None]
    if not sent or max(sent) == min(sent):
        return Stationarity(None, None, None, None)
    first, last = min(sent), max(sent)
    quarter = (last - first) / 4
    early = time_mean(over, first + quarter, first + 2 * quarter)
    late = time_mean(over, last - quarter, last)
    told = len(sent) >= 4 * _FEWEST
    grows = late > _GROWTH * early and late - early > max(1.0, math.sqrt(early))
    growth = ttft_growth(
        [
            (trace.scheduled, trace.first_content - trace.scheduled)
            for trace in traces
            if trace.ok and trace.first_content is not None and trace.sent is not None and trace.sent >= first + quarter
        ],
        first,
        last,
    )
    return Stationarity(growth.grows, grows if told else None, growth.medians, (early, late) if told else None)


def ttft_growth(points: Sequence[tuple[Nanoseconds, Nanoseconds]], first: Nanoseconds, last: Nanoseconds) -> TtftGrowth:
    """Whether the time to first token grew; see the module.

    Args:
        points: (due, time to first token) of requests with a whole answer that were sent after the first quarter.
        first: when the first request was sent.
        last: when the last was.
    """
    quarter = (last - first) / 4
    second = [ttft for due, ttft in points if due < first + 2 * quarter]
    fourth = [ttft for due, ttft in points if due >= last - quarter]
    if min(len(second), len(fourth)) < _FEWEST:
        return TtftGrowth(None, None)
    medians = (median(second) / 1e9, median(fourth) / 1e9)
    trend = rank_correlation(points) * math.sqrt(len(points) - 1)
    return TtftGrowth(medians[1] > _GROWTH * medians[0] and trend > _SIGNIFICANT, medians)


def rank_correlation(points: Sequence[tuple[float, float]]) -> float:
    """Spearman's: Pearson's correlation of ranks, ties at their mean rank. 0 where one side is constant."""
    xs, ys = _ranks([x for x, _ in points]), _ranks([y for _, y in points])
    middle = (len(points) + 1) / 2
    covariance = sum((x - middle) * (y - middle) for x, y in zip(xs, ys, strict=True))
    spread = math.sqrt(sum((x - middle) ** 2 for x in xs) * sum((y - middle) ** 2 for y in ys))
    return covariance / spread if spread else 0.0


def little(traces: Iterable[RequestTrace], samples: Sequence[HealthSample]) -> LittleCheck:
    """Over the time that the client's samples cover; a request that was in flight at an edge counts with its part."""
    if not samples:
        return LittleCheck(None, None, None)
    start = samples[0].time - samples[0].interval
    stop = samples[-1].time
    sampled = fmean(sample.in_flight for sample in samples) if len(samples) >= _FEWEST_SAMPLES else None
    stays = [max(0, min(stop, t.end) - max(start, t.sent)) for t in traces if t.sent is not None]
    if not stays or stop <= start:
        return LittleCheck(sampled, None, None)
    throughput, residence = len(stays) / (stop - start), fmean(stays)
    expected = throughput * residence
    if sampled is None:
        return LittleCheck(None, expected, None)
    return LittleCheck(sampled, expected, abs(sampled - expected) <= max(0.5, _LITTLE * expected))


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    place = 0
    for _, group in itertools.groupby(order, key=values.__getitem__):
        members = list(group)
        for member in members:
            ranks[member] = place + (len(members) + 1) / 2
        place += len(members)
    return ranks
