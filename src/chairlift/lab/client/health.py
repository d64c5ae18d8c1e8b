"""The client watches itself: event loop, processor, lateness."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chairlift.core.request import Nanoseconds
from chairlift.lab.client.clock import MILLISECOND, SECOND, Alarm, Clock
from chairlift.records.client import HealthSample

PRESSURE = Path("/proc/pressure/cpu")


@dataclass(slots=True)
class Tally:
    """What the client has done since the last sample, counted where it happens."""

    sent: int = 0
    send_lag_max: Nanoseconds = 0
    chunks: int = 0
    in_flight: int = 0
    """Now."""

    def began(self, lag: Nanoseconds) -> None:
        """A request was begun, this much after it was due."""
        self.sent += 1
        self.in_flight += 1
        self.send_lag_max = max(self.send_lag_max, lag)


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time used so far."""

    thread: Nanoseconds
    process: Nanoseconds
    stalled: Nanoseconds | None
    """Time in which some task of the machine found no core; None where the system does not tell."""


def read_usage(pressure: Path = PRESSURE) -> Usage:
    """Of the calling thread, its process, and the machine."""
    return Usage(time.thread_time_ns(), time.process_time_ns(), read_stalled(pressure))


def read_stalled(path: Path) -> Nanoseconds | None:
    """The `total` of the line `some` (microseconds, says the kernel's psi.rst) in ns; None where there is none."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    some = next((line.split() for line in lines if line.startswith("some ")), [])
    total = next((word.removeprefix("total=") for word in some if word.startswith("total=")), "")
    return int(total) * 1000 if total.isdecimal() else None


class HealthMonitor:
    """Beats on the event loop and hands out a sample each interval. Use it on the client's thread.

    Args:
        clock: the client's.
        tally: what the client counts.
        emit: takes the samples.
        interval: between samples.
        beat: between heartbeats. A loop that stands still for many beats has each of them counted with its own lag,
            so that long stalls weigh as much as they last.
        usage: reads processor time.
    """

    def __init__(
        self,
        clock: Clock,
        tally: Tally,
        emit: Callable[[HealthSample], None],
        *,
        interval: Nanoseconds = SECOND,
        beat: Nanoseconds = 50 * MILLISECOND,
        usage: Callable[[], Usage] = read_usage,
    ) -> None:
        self._clock = clock
        self._tally = tally
        self._emit = emit
        self._interval = interval
        self._beat = beat
        self._usage = usage
        self._lags: list[Nanoseconds] = []
        self._alarm: Alarm | None = None
        self._next_beat = self._begun = clock.now()
        self._before = usage()

    def start(self) -> None:
        """From now on."""
        self._begun = self._clock.now()
        self._next_beat = self._begun + self._beat
        self._before = self._usage()
        self._alarm = self._clock.call_at(self._next_beat, self._on_beat)

    def stop(self) -> None:
        """Hand out what is left of the last interval, and end."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
            if self._clock.now() > self._begun:
                self._sample(self._clock.now())

    def _on_beat(self) -> None:
        now = self._clock.now()
        while self._next_beat <= now:
            self._lags.append(now - self._next_beat)
            self._next_beat += self._beat
        if now - self._begun >= self._interval:
            self._sample(now)
        self._alarm = self._clock.call_at(self._next_beat, self._on_beat)

    def _sample(self, now: Nanoseconds) -> None:
        interval, usage, before, tally = now - self._begun, self._usage(), self._before, self._tally
        known = usage.stalled is not None and before.stalled is not None
        self._emit(
            HealthSample(
                time=now,
                interval=interval,
                loop_lags=tuple(self._lags),
                sent=tally.sent,
                send_lag_max=tally.send_lag_max,
                in_flight=tally.in_flight,
                chunks=tally.chunks,
                thread_cpu=(usage.thread - before.thread) / interval,
                process_cpu=(usage.process - before.process) / interval,
                pressure=((usage.stalled or 0) - (before.stalled or 0)) / interval if known else None,
            )
        )
        tally.sent = tally.send_lag_max = tally.chunks = 0
        self._lags.clear()
        self._begun, self._before = now, usage


def allow_many_files() -> int:
    """Raise the soft limit on open files to the hard one, as every connection needs one. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # macOS refuses "unlimited"
            return soft
    return hard
