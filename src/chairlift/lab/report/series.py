"""Quantities over time, and distributions, with no more points than a picture can show."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from chairlift.core.reasons import Reason
from chairlift.core.request import Nanoseconds
from chairlift.lab.report.sources import RunView

MOST_POINTS: Final = 400
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Timeline:
    """A quantity that holds its value until the next point, or what stands in its place."""

    points: tuple[Point, ...]
    """Seconds since the run's first request was due, and the value from then on."""
    missing: str = ""
    """Why there is none."""


def queue(view: RunView) -> Timeline:
    """Requests that wait: due and not yet admitted, or preempted. Exact where the engine is ours; else as the server's
    samples say.
    """
    if view.engine is None:
        return _sampled(view, "waiting", "the server does not say how many wait")
    changes: list[tuple[Nanoseconds, int]] = []
    left = {request.request_id: request.released for request in view.requests}
    for request in view.requests:
        changes += [(request.arrival, 1), (request.released if request.admitted is None else request.admitted, -1)]
    out: dict[str, Nanoseconds] = {}
    for decision in view.decisions:
        if decision.reason == Reason.PREEMPTED:
            out[decision.request_id] = decision.time
            changes.append((decision.time, 1))
        elif decision.reason == Reason.RESUMED and out.pop(decision.request_id, None) is not None:
            changes.append((decision.time, -1))
    changes += [(left[name], -1) for name in out if name in left]
    changes.sort()
    sums = accumulate(change for _, change in changes)
    points = [((at - view.zero) / 1e9, float(value)) for (at, _), value in zip(changes, sums, strict=True)]
    return Timeline((*thinned(points), (view.length / 1e9, 0.0)) if points else ())


def kv_use(view: RunView) -> Timeline:
    """Share of the KV blocks that requests hold: during a step the more of what they held before and after it."""
    if view.engine is None:
        return _sampled(view, "kv_usage", "the server does not say how much of its KV cache is in use")
    points, before = [(0.0, 0.0)], 0
    for step in view.steps:
        points.append(((step.planned - view.zero) / 1e9, max(before, step.kv_most) / step.kv_total))
        points.append(((step.committed - view.zero) / 1e9, step.kv_used / step.kv_total))
        before = step.kv_used
    return Timeline(tuple(thinned(points)))


def cdf(values: Sequence[float]) -> list[Point]:
    """Value and share of values up to it, of ascending ones."""
    count = len(values)
    if count <= MOST_POINTS:
        return [(values[0], 0.0), *((value, (at + 1) / count) for at, value in enumerate(values))] if values else []
    places = (round(at * (count - 1) / (MOST_POINTS - 1)) for at in range(MOST_POINTS))
    return [(values[0], 0.0), *((values[place], bisect_right(values, values[place]) / count) for place in places)]


def thinned(points: Iterable[Point], most: int = MOST_POINTS) -> list[Point]:
    """Of many points the largest value in each of so many equal spans of time, so that no peak is lost."""
    kept: list[Point] = []
    for at, value in points:
        if kept and kept[-1][0] == at:
            kept[-1] = (at, value)
        elif not kept or kept[-1][1] != value:
            kept.append((at, value))
    if len(kept) <= most:
        return kept
    start, length = kept[0][0], kept[-1][0] - kept[0][0]
    peaks: dict[int, Point] = {}
    for at, value in kept[:-1]:
        span = int((at - start) / length * (most - 1))
        if span not in peaks or value > peaks[span][1]:
            peaks[span] = (at, value)
    return [*peaks.values(), kept[-1]]


def _sampled(view: RunView, name: str, missing: str) -> Timeline:
    first = min((trace.scheduled for trace in view.traces), default=0)
    points = [
        ((sample.time - first) / 1e9, float(value))
        for sample in view.samples
        if (value := getattr(sample, name)) is not None
    ]
    return Timeline(tuple(thinned(points)), "" if points else missing)
