"""A load lived through by the simulator, and what its clients would have seen: the same traces as a run in real time.

    run = simulate_load(schedule, find_device_model("h100-sxm/llama-3.1-8b"), SchedulerConfig(max_num_seqs=256))
    summarize(run.traces)

The schedule's playback says who comes when, here as for a client in real time, so closed loops and sessions follow from
what the simulated engine does. There is no network and no client that could be late: a request is sent when it is due,
and a token is seen when it is released. There is no clock either: a result is a function of the arguments alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from chairlift.core.config import KVCapacity, SchedulerConfig
from chairlift.core.reasons import Reason
from chairlift.core.request import FinishReason, Nanoseconds, Refused, Request
from chairlift.core.runs import Run, TokenRuns
from chairlift.devices.memory import MemoryPlan
from chairlift.devices.model import DeviceModel
from chairlift.lab.client.options import Stop
from chairlift.lab.loads.playback import Due, Playback
from chairlift.lab.loads.request import ScheduledRequest, Segment
from chairlift.lab.loads.schedule import Schedule
from chairlift.records.client import Chunks, ErrorClass, RequestTrace, TokenSource
from chairlift.records.observer import Observer
from chairlift.records.schema import RequestRecord
from chairlift.runners.simulated import TOKEN, SimulatorSettings
from chairlift.sim.events import Arrival, Departure, Event, InputEnd
from chairlift.sim.loop import SimulationResult, simulate

_PREFIX: Final = "run0-"
"""Of request ids, as the engine has them in its first run: the rest is the index in the schedule."""
_STRETCH: Final = 1 << 32
"""Ids from one stretch of a prompt to the next: more than any stretch has tokens."""


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """What came of a load."""

    traces: tuple[RequestTrace, ...]
    """In the order in which the requests ended; none where they were not to be kept."""
    result: SimulationResult
    capacity: KVCapacity
    memory: MemoryPlan | None
    """How the device's memory was divided, where the device model knows it."""
    steps_outside: int
    """Steps outside the device model's valid range."""
    warnings: tuple[str, ...]
    """What a reader of the figures must know of those."""


def simulate_load(
    schedule: Schedule,
    model: DeviceModel,
    config: SchedulerConfig,
    *,
    settings: SimulatorSettings | None = None,
    observers: Iterable[Observer] = (),
    time_limit: Nanoseconds | None = None,
    traces: bool | Callable[[RequestTrace], None] = True,
    stop: Stop | None = None,
) -> SimulatedRun:
    """Put a load to a device model.

    Memory is flat in tokens where no traces are kept: what is observed is a few runs of numbers a request. A trace
    has the moment of every token, 17 bytes each.

    Args:
        schedule: who comes, when, with what.
        model: of the device.
        config: the scheduler's settings.
        settings: of the simulated device.
        observers: shown the engine's records.
        time_limit: cut everything at this moment of virtual time.
        traces: keep them for the result, make none, or show each to this function as its request ends.
        stop: asks for an early end: what is in progress is cut.

    Raises:
        ConfigError, OutOfDeviceMemory, OutsideValidRange, EngineUnhealthy: as SimulatedRunner.of and simulate().
    """
    runner = (settings or SimulatorSettings()).runner(model, config)
    kept: list[RequestTrace] = []
    take = kept.append if traces is True else traces or None
    source = PlaybackSource(Playback(schedule), take, end=schedule.load.duration, stop=stop)
    watching = [*observers, source] if take else list(observers)
    result = simulate(config, runner, source, observers=watching, time_limit=time_limit)
    return SimulatedRun(
        traces=tuple(kept),
        result=result,
        capacity=runner.capacity(),
        memory=runner.memory,
        steps_outside=runner.range.steps_outside,
        warnings=runner.range.warnings,
    )


class PlaybackSource(Observer):
    """A schedule as what comes to a simulated engine; and its clients, who see what leaves.

    Args:
        playback: of the schedule.
        take: given each trace.
        end: when nothing starts any more, where the load says so.
        stop: asks for an early end.
    """

    def __init__(
        self,
        playback: Playback,
        take: Callable[[RequestTrace], None] | None = None,
        *,
        end: Nanoseconds | None = None,
        stop: Stop | None = None,
    ) -> None:
        self._playback = playback
        self._take = take
        self._end = end
        self._stop = stop
        self._flying: dict[int, None] = {}
        self._warmup: set[int] = set()
        self._deadlines: dict[int, Nanoseconds] = {}
        self._streams: dict[str, int] = {}
        """Numbers of the kinds of stretches in prompts."""
        self._now: Nanoseconds = 0
        self._following: Nanoseconds | None = None
        self._looked = False
        """Whether that is when something comes next: it is looked for anew when something came or ended."""
        self._input_ended = False

    # who comes

    def next(self) -> Nanoseconds | None:
        if self._stopped:
            return self._now if self._flying else None
        if not self._looked:
            following = self._playback.next_due()
            self._following = self._exhausted() if following is None else following
            self._looked = True
        return self._following

    def take(self, before: Nanoseconds) -> Sequence[Event]:
        if self._stopped:
            leaving, self._flying = self._flying, {}
            return [Departure(before - 1, f"{_PREFIX}{index}") for index in leaving]
        following = self.next()
        if following is None or following >= before:
            return ()
        self._looked = False
        if due := self._playback.due(before - 1):
            self._now = due[-1].at
            return [self._arrival(one) for one in due]
        self._input_ended = True
        return (InputEnd(following),)

    def refused(self, arrival: Arrival, verdict: Refused) -> None:
        index, now = request_index(verdict.request_id), arrival.time
        error = ErrorClass.OVERLOADED if verdict.reason is Reason.QUEUE_FULL else ErrorClass.REJECTED
        self._show(RequestTrace(
            index, now, index in self._warmup, now, sent=now, written=now, error=error, error_message=verdict.message
        ))  # fmt: skip
        self._land(index, now, failed=True)

    def ended(self, request_id: str, now: Nanoseconds, *, well: bool) -> None:
        self._land(request_index(request_id), now, failed=not well)

    def _exhausted(self) -> Nanoseconds | None:
        """When it is known that nothing further will start; None while something may, and once it was said."""
        if self._input_ended:
            return None
        if self._playback.exhausted(self._now):
            return self._now
        if self._end is not None and self._playback.exhausted(self._end):
            return max(self._now, self._end)
        return None

    def _arrival(self, due: Due) -> Arrival:
        request, bound = due.request, due.request.max_tokens
        self._flying[request.index] = None
        if due.warmup:
            self._warmup.add(request.index)
        if request.deadline is not None:
            self._deadlines[request.index] = request.deadline
        return Arrival(
            due.at,
            Request(
                f"{_PREFIX}{request.index}", self._prompt(request), bound, priority=request.priority, arrival=due.at
            ),
            # Told to ignore the end of the sequence, an answer goes on to its bound.
            output_tokens=None if request.ignore_eos or request.output_tokens == bound else request.output_tokens,
        )

    def _prompt(self, request: ScheduledRequest) -> TokenRuns:
        return TokenRuns.of(*map(self._stretch, request.recipe))

    def _stretch(self, segment: Segment) -> Run:
        """Equal stretches have equal ids, and an earlier turn's answer is what was generated."""
        if segment.stream == "answer":
            return Run(TOKEN, 0, segment.tokens)
        kind = self._streams.setdefault(segment.stream, len(self._streams))
        return Run((1 + kind + (segment.number << 16)) * _STRETCH, 1, segment.tokens)

    def _land(self, index: int, now: Nanoseconds, *, failed: bool) -> None:
        self._now = max(self._now, now)
        self._looked = False
        self._flying.pop(index, None)
        self._playback.finished(index, now, failed=failed)

    @property
    def _stopped(self) -> bool:
        return self._stop is not None and self._stop.requested

    # what they see

    def on_request(self, record: RequestRecord) -> None:
        index = request_index(record.request_id)
        error, message = None, ""
        if record.finish_reason is FinishReason.CANCELLED:
            error = ErrorClass.CUT
            message = "the run was interrupted" if self._stopped else "the run's time limit was over"
        elif record.finish_reason is FinishReason.ERROR:
            error, message = ErrorClass.IN_STREAM, record.error
        chunks = _chunks(record)
        self._show(
            RequestTrace(
                index=index,
                scheduled=record.arrival,
                warmup=index in self._warmup,
                end=record.released,
                sent=record.arrival,
                written=record.arrival,
                first_event=chunks[0].time if chunks else None,
                first_content=chunks[0].time if chunks else None,
                last_content=chunks[-1].time if chunks else None,
                chunks=chunks,
                prompt_tokens=record.prompt_tokens,
                cached_tokens=record.cached_tokens,
                output_tokens=record.output_tokens,
                finish_reason=None if error else str(record.finish_reason),
                error=error,
                error_message=message,
            )
        )

    def _show(self, trace: RequestTrace) -> None:
        deadline = self._deadlines.pop(trace.index, None)
        if self._take is not None:
            self._take(trace if deadline is None else replace(trace, deadline=deadline))


def _chunks(record: RequestRecord) -> Chunks:
    """What left when: each token in the step that computed it, or all together at the end."""
    if record.first_token_released is None:
        return Chunks()
    if record.streamed:
        times = accumulate(record.gaps, initial=record.first_token_released)
        return Chunks.of_single_tokens(times, TokenSource.RUNNING_COUNT)
    return Chunks([(record.first_token_released, record.output_tokens, TokenSource.RUNNING_COUNT)])


def request_index(request_id: str) -> int:
    """The number in its schedule of a simulated request."""
    return int(request_id.removeprefix(_PREFIX))
