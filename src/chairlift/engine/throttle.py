"""One log line a period for a fault that lasts, however often it is met."""

from __future__ import annotations

from chairlift.core.request import Nanoseconds

DEFAULT_PERIOD: Nanoseconds = 30_000_000_000


class Throttle:
    """Says whether to speak. A new cause is spoken of at once.

    Args:
        period: ns between two lines about one cause.
    """

    def __init__(self, period: Nanoseconds = DEFAULT_PERIOD) -> None:
        self._period = period
        self._next: dict[str, Nanoseconds] = {}
        self._held: dict[str, int] = {}

    def speaks(self, cause: str, now: Nanoseconds) -> bool:
        """Whether a line about this cause is due; if so, the next is due a period later."""
        if now < self._next.get(cause, now):
            self._held[cause] = self._held.get(cause, 0) + 1
            return False
        self._next[cause] = now + self._period
        return True

    def held_back(self, cause: str) -> int:
        """How many lines were held back since the last one; asking resets it."""
        return self._held.pop(cause, 0)
