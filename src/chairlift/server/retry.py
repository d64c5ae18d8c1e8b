"""When a refused client should come back: computed from how fast places in the queue came free."""

from __future__ import annotations

import math
from collections import deque

from chairlift.core.reasons import Reason
from chairlift.core.request import Nanoseconds
from chairlift.records.observer import Observer
from chairlift.records.schema import DecisionRecord

_SECOND = 10**9
LONGEST = 600
"""Seconds; whoever waits longer had better ask another server."""


class RetryAfter(Observer):
    """Hands out future places in the queue to those who were refused.

    A place comes free when a waiting request is admitted; attach this to the engine, whose thread tells. The rate is
    that of the last `window` such moments. Each refused request is told when the next place that nobody was told of yet
    comes free, so that a crowd does not come back all at once; but never later than the moment when all that waits now
    has been admitted, since who was told may never come back.
    """

    def __init__(self, window: int = 32) -> None:
        self._freed: deque[Nanoseconds] = deque(maxlen=window)
        self._next: Nanoseconds = 0

    def on_decision(self, record: DecisionRecord) -> None:
        if record.reason == Reason.ADMITTED:
            self.freed(record.time)

    def freed(self, now: Nanoseconds) -> None:
        """A place in the queue came free."""
        self._freed.append(now)

    def seconds(self, now: Nanoseconds, waiting: int) -> int:
        """What Retry-After says.

        Args:
            now: the time, on the clock of freed().
            waiting: requests in the queue.

        Returns:
            Whole seconds, at least 1. 1 while too few places came free to tell.
        """
        interval = self.interval(now)
        if interval is None:
            return 1
        self._next = min(max(self._next, now) + interval, now + max(1, waiting) * interval)
        return min(LONGEST, max(1, math.ceil((self._next - now) / _SECOND)))

    def interval(self, now: Nanoseconds) -> Nanoseconds | None:
        """Mean time between places that came free, or None while fewer than two did.

        The time since the last one counts as soon as it makes the mean longer: a server that has stopped says so.
        """
        if len(self._freed) < 2:
            return None
        first, last, count = self._freed[0], self._freed[-1], len(self._freed)
        return max((last - first) // (count - 1), (now - first) // count, 1)
