"""Time limits of one request, on the client's clock."""

from __future__ import annotations

from collections.abc import Callable

from chairlift.core.request import Nanoseconds
from chairlift.lab.client.clock import SECOND, Alarm, Clock
from chairlift.lab.client.options import TimeLimits
from chairlift.lab.client.stopwatch import Stopwatch


class Watchdog:
    """Calls when one of the limits is over. Costs one alarm a request, not one a chunk.

    Attributes:
        verdict: which limit is over, for people; None while none is.
    """

    __slots__ = ("_alarm", "_clock", "_expire", "_limits", "_watch", "verdict")

    def __init__(self, clock: Clock, limits: TimeLimits, watch: Stopwatch, expire: Callable[[], None]) -> None:
        self.verdict: str | None = None
        self._clock = clock
        self._limits = limits
        self._watch = watch
        self._expire = expire
        self._alarm: Alarm | None = None
        self._arm()

    def stop(self) -> None:
        """The request has ended."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _look(self) -> None:
        now = self._clock.now()
        for when, words in self._ends():
            if now >= when:
                self.verdict = words
                self._expire()
                return
        self._arm()

    def _arm(self) -> None:
        ends = [when for when, _ in self._ends()]
        self._alarm = self._clock.call_at(min(ends), self._look) if ends else None

    def _ends(self) -> list[tuple[Nanoseconds, str]]:
        limits, watch = self._limits, self._watch
        began = watch.scheduled if watch.sent is None else watch.sent
        ends = []
        if limits.connect is not None and watch.written is None:
            ends.append((began + limits.connect, f"not connected within {limits.connect / SECOND:g} s"))
        if limits.idle is not None:
            since = max(began, watch.last_activity)
            ends.append((since + limits.idle, f"nothing came for {limits.idle / SECOND:g} s"))
        if limits.total is not None:
            ends.append((began + limits.total, f"no end within {limits.total / SECOND:g} s"))
        return ends
