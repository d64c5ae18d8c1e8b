"""Time as the client has it: nanoseconds from the run's start, and calls at a given moment.

Everything in the client takes its time from such a clock, so that tests drive it by hand.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from chairlift.core.request import Nanoseconds

SECOND = 1_000_000_000
MILLISECOND = 1_000_000


class Alarm(Protocol):
    """A call that is due."""

    def cancel(self) -> None:
        """It is not wanted any more. Nothing happens when it was made already."""


class Clock(Protocol):
    """Time, and calls on the event loop at a time."""

    def start(self) -> None:
        """The run starts: now is 0."""

    def now(self) -> Nanoseconds:
        """Nanoseconds since the run's start."""

    def call_at(self, when: Nanoseconds, call: Callable[[], None]) -> Alarm:
        """Make a call on the event loop at a time, never before it; as soon as may be when that has passed."""


class RunClock:
    """The monotonic clock. Use it on one running event loop.

    Event loops count in milliseconds and may wake up early by half of one (uvloop), so a call that comes early waits
    again.
    """

    def __init__(self) -> None:
        self._start = time.monotonic_ns()

    def start(self) -> None:
        self._start = time.monotonic_ns()

    def now(self) -> Nanoseconds:
        return time.monotonic_ns() - self._start

    def call_at(self, when: Nanoseconds, call: Callable[[], None]) -> Alarm:
        return _LoopAlarm(self, when, call)


class _LoopAlarm:
    """One call at a time, on the running event loop."""

    __slots__ = ("_call", "_clock", "_handle", "_when")

    def __init__(self, clock: RunClock, when: Nanoseconds, call: Callable[[], None]) -> None:
        self._clock = clock
        self._when = when
        self._call = call
        self._handle = self._arm(when - clock.now())

    def cancel(self) -> None:
        self._handle.cancel()

    def _arm(self, delay: Nanoseconds) -> asyncio.Handle:
        loop = asyncio.get_running_loop()
        return loop.call_soon(self._fire) if delay <= 0 else loop.call_later(delay / SECOND, self._fire)

    def _fire(self) -> None:
        remaining = self._when - self._clock.now()
        if remaining > 0:
            self._handle = self._arm(remaining)
        else:
            self._call()


async def sleep_until(clock: Clock, when: Nanoseconds) -> None:
    """Come back at a time, at once when it has passed."""
    if clock.now() >= when:
        return
    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    alarm = clock.call_at(when, wake)
    try:
        await woken
    finally:
        alarm.cancel()
