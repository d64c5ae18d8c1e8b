"""Queue, batch and memory of a run at their highest: exact from an engine's records, else from a server's samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chairlift.records.client import ServerSample
from chairlift.records.schema import StepRecord


@dataclass(frozen=True, slots=True)
class Pressure:
    """The highest that was seen. None: the target does not say."""

    running: int | None
    """Requests being computed."""
    waiting: int | None
    """Requests queued."""
    kv_share: float | None
    """Of the KV pool, what requests held."""
    preemptions: int | None
    """Times a request's KV blocks were taken from it."""
    sampled: bool
    """From samples: what rose and fell between two of them was not seen."""

    def __str__(self) -> str:
        """For people, what is known."""
        parts = [
            "" if self.running is None else f"up to {self.running} ran at once",
            "" if self.waiting is None else f"up to {self.waiting} waited",
            "" if self.kv_share is None else f"{self.kv_share:.1%} of the KV pool held at most",
            "" if self.preemptions is None else f"{self.preemptions} preemptions",
        ]
        told = ", ".join(part for part in parts if part) or "the target does not say what ran and what waited"
        return f"{told} (as sampled)" if self.sampled else told


def of_steps(steps: Sequence[StepRecord]) -> Pressure:
    """Exact: every step has them."""
    total = steps[-1].kv_total if steps else 0
    return Pressure(
        running=max((step.running for step in steps), default=0),
        waiting=max((step.waiting for step in steps), default=0),
        kv_share=max(step.kv_most for step in steps) / total if total else None,
        preemptions=sum(step.preempted for step in steps),
        sampled=False,
    )


def of_samples(samples: Sequence[ServerSample]) -> Pressure:
    """What a server said of itself."""
    preempted = [one.preemptions for one in samples if one.preemptions is not None]
    running = _highest(samples, lambda one: one.running)
    waiting = _highest(samples, lambda one: one.waiting)
    return Pressure(
        running=None if running is None else round(running),
        waiting=None if waiting is None else round(waiting),
        kv_share=_highest(samples, lambda one: one.kv_usage),
        preemptions=round(preempted[-1] - preempted[0]) if preempted else None,
        sampled=True,
    )


def _highest(samples: Sequence[ServerSample], value: Callable[[ServerSample], float | None]) -> float | None:
    return max((found for one in samples if (found := value(one)) is not None), default=None)
