"""The figures of a simulated load without a trace of every token: the same numbers, from runs of gaps.

Requests that get their tokens in the same steps have the same runs of times between tokens, so runs are counted, and
spelled out once each at the end. What summarize() says of the run's traces, to the last digit that floats allow, in a
twentieth of the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chairlift.core.request import FinishReason, Nanoseconds
from chairlift.lab.loads.load import Load
from chairlift.lab.simulation import SimulatedRun, request_index
from chairlift.records.gaps import GapRun
from chairlift.records.observer import Observer
from chairlift.records.schema import RequestRecord
from chairlift.records.steady import ttft_growth

PERCENTS: Final = (50.0, 90.0, 99.0)
_ANSWERED: Final = (FinishReason.STOP, FinishReason.LENGTH)
_EXACT: Final = 2**62
"""Products beyond this are not left to 64 bits."""


@dataclass(frozen=True, slots=True)
class Spread:
    """One metric, in seconds."""

    count: int
    mean: float
    percentiles: Mapping[float, float]
    """Of PERCENTS, interpolated linearly between ranks."""
    maximum: float


@dataclass(frozen=True, slots=True)
class SimulatedFigures:
    """A load's figures, defined as the client's of the same names."""

    scheduled: int
    """Warm-up left out."""
    answered: int
    refused: int
    """Turned away at the door, warm-up included."""
    span: float
    """Seconds from the first due to the last end."""
    output_tokens_per_second: float | None
    ttft: Spread | None
    """Time to first token from schedule."""
    time_between_tokens: Spread | None
    """None also where results are held back and nobody could observe it."""
    end_to_end: Spread | None
    growth: tuple[float, float] | None
    """Seconds: median time to first token in the second quarter of the arrivals and in the last, where it still grew:
    then latencies say how long the load was. See chairlift.records.steady."""
    preemptions: int
    busy: float
    """Device time / wall."""
    useful: float
    """Prefill and decode tokens / all computed tokens."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, seconds."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        for name, value in plain.items():
            if isinstance(value, Spread):
                told = {f"p{percent:g}": of for percent, of in value.percentiles.items()}
                plain[name] = {"count": value.count, "mean": value.mean, **told, "max": value.maximum}
        return plain


class FiguresObserver(Observer):
    """Attach it to a simulation of one load, and ask for the figures when that is over.

    Args:
        load: says which requests are warm-up.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._scheduled = self._answered = self._tokens = 0
        self._first: Nanoseconds | None = None
        self._last: Nanoseconds = 0
        self._due: list[Nanoseconds] = []
        self._ttft: list[Nanoseconds] = []
        """Beside it."""
        self._end_to_end: list[Nanoseconds] = []
        self._gaps: Counter[GapRun] = Counter()

    def on_request(self, record: RequestRecord) -> None:
        arrival = record.arrival
        if self._load.is_warmup(request_index(record.request_id), arrival):
            return
        self._scheduled += 1
        self._first = arrival if self._first is None else min(self._first, arrival)
        self._last = max(self._last, record.released)
        if record.finish_reason not in _ANSWERED:
            return
        self._answered += 1
        self._tokens += record.output_tokens
        self._end_to_end.append(record.released - arrival)
        if record.first_token_released is not None:
            self._due.append(arrival)
            self._ttft.append(record.first_token_released - arrival)
        if record.streamed:
            self._gaps.update(record.gap_runs)

    def figures(self, run: SimulatedRun) -> SimulatedFigures:
        """Of the run that it was attached to."""
        refused = sum(one.count for one in run.result.refusals.values())
        span = 0.0 if self._first is None else (self._last - self._first) / 1e9
        ledger = run.result.ledger
        return SimulatedFigures(
            scheduled=self._scheduled + refused,
            answered=self._answered,
            refused=refused,
            span=span,
            output_tokens_per_second=self._tokens / span if span and self._tokens else None,
            ttft=_spread(np.array(self._ttft, dtype=np.int64)),
            time_between_tokens=_between(self._gaps),
            end_to_end=_spread(np.array(self._end_to_end, dtype=np.int64)),
            growth=self._growth(),
            preemptions=run.result.counters.preemptions,
            busy=ledger.busy,
            useful=ledger.useful,
        )

    def _growth(self) -> tuple[float, float] | None:
        if not self._due or max(self._due) == min(self._due):
            return None
        first, last = min(self._due), max(self._due)
        points = [
            (due, ttft) for due, ttft in zip(self._due, self._ttft, strict=True) if due >= first + (last - first) / 4
        ]
        growth = ttft_growth(points, first, last)
        return growth.medians if growth.grows else None


def _spread(values: NDArray[np.int64], weights: NDArray[np.int64] | None = None) -> Spread | None:
    """Of nanoseconds, each as often as its weight says."""
    if not len(values):
        return None
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    ends = np.cumsum(np.ones_like(ordered) if weights is None else weights[order])
    count = int(ends[-1])
    ranks = np.array(PERCENTS) / 100 * (count - 1)
    below = np.floor(ranks).astype(np.int64)
    lower = ordered[np.searchsorted(ends, below, side="right")]
    upper = ordered[np.searchsorted(ends, np.minimum(below + 1, count - 1), side="right")]
    found = (lower + (upper - lower) * (ranks - below)) / 1e9
    total = np.dot(ordered.astype(np.float64), np.diff(ends, prepend=0).astype(np.float64))
    return Spread(
        count=count,
        mean=float(total) / count / 1e9,
        percentiles=dict(zip(PERCENTS, found.tolist(), strict=True)),
        maximum=float(ordered[-1]) / 1e9,
    )


def _between(runs: Mapping[GapRun, int]) -> Spread | None:
    parts = [_values(run) for run in runs]
    if not parts:
        return None
    sizes = np.array([run.gaps for run in runs], dtype=np.int64)
    weights = np.repeat(np.array(list(runs.values()), dtype=np.int64), sizes)
    return _spread(np.concatenate(parts), weights)


def _values(run: GapRun) -> NDArray[np.int64] | Sequence[Nanoseconds]:
    gaps, base, start, step, divisor = run
    if gaps == 1:
        return (base + start // divisor,)
    if start + gaps * abs(step) > _EXACT:
        return [run.at(k) for k in range(gaps)]
    return base + (start + np.arange(gaps, dtype=np.int64) * step) // divisor
