"""What the policies of closed batches see, and what they may answer."""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.core.reasons import Reason
from chairlift.core.request import Nanoseconds


@dataclass(frozen=True, slots=True)
class QueueView:
    """The queue of a device that is free."""

    waiting: int
    oldest_arrival: Nanoseconds
    """Of the request that arrived first; of no meaning while nothing waits."""
    input_ended: bool = False
    """Nobody will come any more: an offline input is at its end, or the server drains."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a batch of this many, or fewer where memory ends before."""

    size: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Hold:
    """Start nothing now."""

    until: Nanoseconds | None
    """When the answer changes if nobody arrives; None: only an arrival can change it."""
    reason: Reason
