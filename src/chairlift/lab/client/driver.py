"""Sends a schedule's requests when they are due, whatever takes them, and yields what is observed.

Open loop means that nothing waits for anything but its time: there is no limit on connections and no semaphore, and a
client that comes late is late in the record (sent - scheduled). Closed loops and sessions follow from the schedule.

Side effects when a request ends, in this order: its trace leaves; its answer is kept for the session's next turn; the
schedule learns of it; what became due by it is begun.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from chairlift.core.errors import ConfigError
from chairlift.lab.client.clock import MILLISECOND, Alarm, Clock, sleep_until
from chairlift.lab.client.devices import Devices
from chairlift.lab.client.health import HealthMonitor, Tally
from chairlift.lab.client.options import Answer, RunOptions, Stop
from chairlift.lab.client.stopwatch import Stopwatch
from chairlift.lab.client.watchdog import Watchdog
from chairlift.lab.loads.playback import Due, Playback
from chairlift.lab.loads.request import ScheduledRequest
from chairlift.lab.loads.schedule import Schedule
from chairlift.records.client import ErrorClass, Observation, RequestTrace, ServerSample

logger = logging.getLogger(__name__)

READ_AHEAD = 512
"""Requests prepared before they are due, so that a burst finds its bodies ready."""
_PREPARED_AT_ONCE = 4
_QUIET = 2 * MILLISECOND
"""Preparing goes on only while nothing is due for so long."""

P = TypeVar("P")
NO_ANSWERS: Mapping[int, Answer] = {}


class Sender(Protocol[P]):
    """What takes requests."""

    def prepare(self, request: ScheduledRequest, answers: Mapping[int, Answer]) -> P:
        """Do what can be done before a request is due: write its prompt, encode its body."""

    async def send(self, request: ScheduledRequest, prepared: P, watch: Stopwatch) -> None:
        """Send it and note everything that comes back on the watch. An error of the target's is noted, not raised."""

    async def sample(self, *, complete: bool) -> ServerSample | None:
        """What the target says of itself now; None where it says nothing. The driver puts the times in.

        Args:
            complete: at the run's ends: with everything there is, histograms included.
        """

    def exhausted(self) -> None:
        """Everything was sent; what was sent goes on."""


@dataclass(slots=True)
class _Flight(Generic[P]):
    """One request under way."""

    due: Due
    watch: Stopwatch
    task: asyncio.Task[None]
    watchdog: Watchdog | None = None


class Driver(Generic[P]):
    """Runs one schedule, once.

    Args:
        sender: takes the requests.
        schedule: what to send.
        clock: starts when everything is ready.
        options: see RunOptions.
        stop: asks for an early end.
        devices: read whenever the server is sampled.
    """

    def __init__(
        self,
        sender: Sender[P],
        schedule: Schedule,
        clock: Clock,
        options: RunOptions,
        stop: Stop | None = None,
        devices: Devices | None = None,
    ) -> None:
        self._sender = sender
        self._clock = clock
        self._options = options
        self._devices = devices
        self._stop = stop or Stop()
        self._playback = Playback(schedule)
        self._ahead = _Ahead(sender, schedule)
        self._tally = Tally()
        self._monitor = HealthMonitor(clock, self._tally, self._emit, interval=options.sample_interval)
        self._out: asyncio.Queue[Observation | None] = asyncio.Queue()
        self._flights: dict[int, _Flight[P]] = {}
        self._answers: dict[int, Answer] = {}
        self._alarm: Alarm | None = None
        self._time_limit: Alarm | None = None
        self._cut: str | None = None
        """Why the run is being ended early."""
        self._fault: Exception | None = None
        """What the schedule or the client itself stumbled over."""
        self._started = self._exhausted = False
        self._ended = asyncio.Event()

    async def run(self) -> AsyncGenerator[Observation, None]:
        """See Target.run."""
        supervisor = asyncio.create_task(self._supervise())
        supervisor.add_done_callback(lambda _: self._out.put_nowait(None))
        try:
            while (observation := await self._out.get()) is not None:
                yield observation
            await supervisor
        finally:
            await self._tear_down(supervisor)

    async def _supervise(self) -> None:
        """Sample, start the clock, pump until all is done, sample."""
        self._ahead.fill(READ_AHEAD)
        await self._sample(complete=True)
        self._clock.start()
        self._started = True
        self._monitor.start()
        if (limit := self._options.time_limit) is not None:
            self._time_limit = self._clock.call_at(limit, lambda: self._end_early("the run's time limit was over"))
        self._stop.listen(lambda: self._end_early("the run was interrupted"))
        sampler = asyncio.create_task(self._sample_regularly())
        self._pump()
        try:
            await self._ended.wait()
        finally:
            sampler.cancel()
            with suppress(asyncio.CancelledError):
                await sampler
            self._monitor.stop()
        await self._sample(complete=True)
        if self._fault is not None:
            raise self._fault

    async def _tear_down(self, supervisor: asyncio.Task[None]) -> None:
        self._cut = self._cut or "the run was broken off"
        for alarm in (self._alarm, self._time_limit):
            if alarm is not None:
                alarm.cancel()
        tasks = [supervisor, *(flight.task for flight in self._flights.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _emit(self, observation: Observation) -> None:
        self._out.put_nowait(observation)

    # sending

    def _pump(self, landed: RequestTrace | None = None) -> None:
        """Take in what has ended, if anything; begin what is due; set the alarm for what is due next."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        try:
            if landed is not None and self._fault is None:
                self._playback.finished(landed.index, landed.end, failed=not landed.ok)
            if self._cut is None:
                self._begin_due()
        except Exception as error:  # noqa: BLE001 - nobody awaits an alarm; the run ends with it
            self._fault = error
            self._end_early("the client failed")
        if not self._flights and (self._cut is not None or self._playback.done):
            self._ended.set()

    def _begin_due(self) -> None:
        for due in self._playback.due(self._clock.now()):
            self._begin(due)
        self._tell_exhausted()
        self._prepare()
        following = self._playback.next_due()
        if following is not None:
            self._alarm = self._clock.call_at(following, self._pump)

    def _begin(self, due: Due) -> None:
        keep = self._options.keep_text or due.request.session is not None
        watch = Stopwatch(due.request.index, due.at, warmup=due.warmup, keep_text=keep, tally=self._tally)
        flight: _Flight[P] = _Flight(due, watch, asyncio.get_running_loop().create_task(self._fly(due, watch)))
        self._flights[due.request.index] = flight
        flight.task.add_done_callback(lambda _: self._land(flight))

    async def _fly(self, due: Due, watch: Stopwatch) -> None:
        prepared = self._ahead.take(due.request, self._answers)
        flight = self._flights[due.request.index]
        watch.sent = self._clock.now()
        self._tally.began(watch.sent - due.at)
        flight.watchdog = Watchdog(self._clock, self._options.limits, watch, lambda: _cancel(flight.task))
        await self._sender.send(due.request, prepared, watch)

    def _land(self, flight: _Flight[P]) -> None:
        """A request's task has ended, one way or another."""
        watch, index, now = flight.watch, flight.due.request.index, self._clock.now()
        if flight.watchdog is not None:
            flight.watchdog.stop()
        if flight.task.cancelled():
            self._explain_cancelled(flight)
        elif (error := flight.task.exception()) is not None:
            logger.error("request %d failed by the client's own fault", index, exc_info=error)
            watch.fail(ErrorClass.CLIENT, f"{type(error).__name__}: {error}")
        trace = _with_deadline(watch.trace(now, keep_text=self._options.keep_text), flight.due)
        if watch.sent is not None:
            self._tally.in_flight -= 1
        del self._flights[index]
        self._emit(trace)
        if flight.due.request.session is not None and trace.ok:
            self._answers[index] = watch.answer()
        self._pump(trace)

    def _explain_cancelled(self, flight: _Flight[P]) -> None:
        watch, watchdog = flight.watch, flight.watchdog
        if watch.sent is None:
            watch.fail(ErrorClass.UNSENT, self._cut or "the run was broken off")
        elif watchdog is not None and watchdog.verdict is not None:
            watch.fail(ErrorClass.TIMEOUT, watchdog.verdict)
        else:
            watch.fail(ErrorClass.CUT, self._cut or "the run was broken off")

    def _end_early(self, why: str) -> None:
        """Begin nothing more; cut what is under way. What was due and not begun is recorded as unsent."""
        if self._cut is not None or self._ended.is_set():
            return
        self._cut = why
        now = self._clock.now()
        for due in self._playback.due(now) if self._fault is None else ():
            watch = Stopwatch(due.request.index, due.at, warmup=due.warmup)
            watch.fail(ErrorClass.UNSENT, why)
            self._emit(_with_deadline(watch.trace(now), due))
        for flight in self._flights.values():
            flight.task.cancel()
        self._pump()

    # beside it

    def _prepare(self) -> None:
        """Use a quiet moment for what comes next."""
        following = self._playback.next_due()
        for _ in range(_PREPARED_AT_ONCE):
            if following is not None and following - self._clock.now() < _QUIET:
                return
            with suppress(ConfigError):  # raised again when the request is due, and recorded with it
                self._ahead.fill(self._playback.started + self._playback.cut + READ_AHEAD, at_most=1)

    def _tell_exhausted(self) -> None:
        total, playback = self._ahead.total, self._playback
        if not self._exhausted and total is not None and playback.started + playback.cut == total:
            self._exhausted = True
            # Not at once: the last requests' tasks were made and have not begun. A batch that was told now would leave
            # without them.
            asyncio.get_running_loop().call_soon(self._sender.exhausted)

    async def _sample_regularly(self) -> None:
        for number in itertools.count(1):
            await sleep_until(self._clock, number * self._options.sample_interval)
            await self._sample(complete=False)

    async def _sample(self, *, complete: bool) -> None:
        began = self._clock.now()
        sample = await self._sender.sample(complete=complete)
        if sample is not None:
            now = self._clock.now()
            self._emit(replace(sample, time=now if self._started else 0, took=now - began))
        if self._devices is not None:
            for device in await asyncio.to_thread(self._devices.read):  # NVML may take milliseconds
                self._emit(replace(device, time=self._clock.now() if self._started else 0))


class _Ahead(Generic[P]):
    """Prepares requests before they are due, in the schedule's order, by reading it a second time.

    Attributes:
        total: how many requests the schedule has, once its end was seen.
    """

    def __init__(self, sender: Sender[P], schedule: Schedule) -> None:
        self.total: int | None = None
        self._sender = sender
        self._rest = iter(schedule)
        self._read = 0
        self._prepared: dict[int, P] = {}
        self._taken: set[int] = set()
        """Requests that were due before they were read here."""

    def fill(self, until: int, at_most: int | None = None) -> None:
        """Prepare requests up to index `until`, no more than `at_most` of them.

        Raises:
            ConfigError: one cannot be prepared, or the schedule cannot go on.
        """
        end = until if at_most is None else min(until, self._read + at_most)
        while self._read < end and self.total is None:
            request = next(self._rest, None)
            if request is None:
                self.total = self._read
                return
            self._read += 1
            if request.index in self._taken:
                self._taken.discard(request.index)
            elif not _needs_answers(request):
                self._prepared[request.index] = self._sender.prepare(request, NO_ANSWERS)

    def take(self, request: ScheduledRequest, answers: Mapping[int, Answer]) -> P:
        """What was prepared of a request; prepared now where that was too early."""
        prepared = self._prepared.pop(request.index, None)
        if prepared is not None:
            return prepared
        if request.index >= self._read:
            self._taken.add(request.index)
        return self._sender.prepare(request, answers)


def _with_deadline(trace: RequestTrace, due: Due) -> RequestTrace:
    deadline = due.request.deadline
    return trace if deadline is None else replace(trace, deadline=deadline)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _needs_answers(request: ScheduledRequest) -> bool:
    return any(segment.stream == "answer" for segment in request.recipe)
