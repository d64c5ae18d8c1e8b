"""Virtual time: the engine's scheduler is asked for plans at times that a device model makes.

A plan is made at `now`; the device model says when it is done; what comes before that comes while the step is in
flight, as to the engine; the commit is the new `now`. Where the scheduler says that a plan may be repeated with only
lengths growing, the repeats are made in one jump, which ends with the step in which anything comes. Jumping and
stepping lead to the same records, to the nanosecond.

Order of what happens at one moment: a commit, the results that leave by it, what comes then, the next plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from chairlift.core.blocks import BlockPool
from chairlift.core.config import KVCapacity, SchedulerConfig
from chairlift.core.errors import ChairliftError, EngineUnhealthy
from chairlift.core.journal import Entry
from chairlift.core.ledger import LedgerReport
from chairlift.core.plan import StepEvents, StepPlan, Wait
from chairlift.core.reasons import Decision, Reason
from chairlift.core.request import FinishReason, Nanoseconds, Refused
from chairlift.core.scheduler import Scheduler
from chairlift.core.state import Counters
from chairlift.core.work import ModelShape
from chairlift.engine.observe import Recorder
from chairlift.records.observer import Observer, show
from chairlift.runners.simulated import Execution
from chairlift.sim.answers import Answers, SimulatedAnswer
from chairlift.sim.events import Arrival, Departure, Event, InputEnd, Source, Switch

_ANSWERED = (FinishReason.STOP, FinishReason.LENGTH)
_OF_STEPS = ("on_step", "on_share", "on_decision", "on_batch")
"""What an observer overrides that wants more than requests."""


class Device(Protocol):
    """What steps are made on: SimulatedRunner, or a journal's own times."""

    def capacity(self) -> KVCapacity: ...

    def shape(self) -> ModelShape | None: ...

    def run(self, plan: StepPlan, most: int = 1, within: Nanoseconds | None = None) -> Execution:
        """See SimulatedRunner.run."""
        ...

    def ready(self, now: Nanoseconds) -> Nanoseconds:
        """When the host makes the next plan, at `now` or later."""
        ...


@dataclass(frozen=True, slots=True)
class Refusals:
    """Requests turned away for one reason."""

    count: int
    example: str
    """What was said to the first."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What came of it, beside the records."""

    started: Nanoseconds
    ended: Nanoseconds
    """When the last result had left."""
    ledger: LedgerReport
    counters: Counters
    refusals: Mapping[Reason, Refusals]
    plans: int
    """Plans made and carried out: steps, less those that were jumped over."""
    cut: int
    """Requests in progress when the time limit came."""

    @property
    def wall(self) -> Nanoseconds:
        """Virtual time that it took."""
        return self.ended - self.started

    @property
    def steps(self) -> int:
        return self.ledger.steps


def simulate(
    config: SchedulerConfig,
    device: Device,
    source: Source,
    *,
    observers: Iterable[Observer] = (),
    jump: bool = True,
    time_limit: Nanoseconds | None = None,
) -> SimulationResult:
    """Run a load to its end.

    Args:
        config: the scheduler's settings.
        device: what steps are made on.
        source: who comes.
        observers: shown every record; what one raises ends the simulation.
        jump: make equal steps at once. False: one by one, to the same end.
        time_limit: cancel what is in progress at this time, and take in nobody after it.

    Raises:
        EngineUnhealthy: work is pending that will never be scheduled; the message has the cause.
        OutOfDeviceMemory: a step does not fit.
        OutsideValidRange: a step lies outside what the device model was made for, and such steps are refused.
    """
    return Simulation(config, device, source, observers=observers, jump=jump, time_limit=time_limit).run()


class Simulation:
    """One simulation.

    Args:
        config, device, source, observers, jump, time_limit: as in simulate().
        journal: appended to at every call of the scheduler; grows without bound.
        start: the virtual time at which it starts.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        device: Device,
        source: Source,
        *,
        observers: Iterable[Observer] = (),
        jump: bool = True,
        time_limit: Nanoseconds | None = None,
        journal: list[Entry] | None = None,
        start: Nanoseconds = 0,
    ) -> None:
        capacity = device.capacity()
        pool = BlockPool(capacity.num_blocks, capacity.block_size)
        self.scheduler = Scheduler(config, capacity, pool=pool, journal=journal)
        self._device = device
        self._source = source
        self._observers = tuple(observers)
        self._recorder = Recorder(device.shape(), pool, self._observers)
        self._answers = Answers() if self._observers else None
        self._steps_wanted = any(map(_wants_steps, self._observers))
        """Or else no records of steps and decisions are made: they cost a fifth of a simulation."""
        self._jump = jump
        self._limit = time_limit
        self._start = start
        self._held: dict[str, None] = {}
        """Requests in progress, in order of coming."""
        self._ends: dict[str, int] = {}
        """Length, prompt included, at which an answer ends before its max_tokens."""
        self._refusals: dict[Reason, Refusals] = {}
        self._plans = 0
        self._cut = 0

    def run(self) -> SimulationResult:
        """See simulate()."""
        now = self._start
        while True:
            self._receive(now + 1)
            if self._limit is not None and now >= self._limit:
                return self._end_early(now)
            if (ready := self._device.ready(now)) > now:
                now = ready
                continue
            plan = self.scheduler.plan(now)
            if isinstance(plan, StepPlan):
                now = self._step(plan, now)
            elif (following := self._after(plan)) is not None:
                now = following
            else:
                return self._result(now)

    # steps

    def _step(self, plan: StepPlan, now: Nanoseconds) -> Nanoseconds:
        """Carry out a plan, or a run of it. Returns when it is committed."""
        self._plans += 1
        self._note(plan.decisions, now)
        most = self.scheduler.horizon(plan) if self._jump else 1
        if self._ends:
            most = min(most, self._steps_to_end(plan))
        coming = self._coming()
        try:
            done = self._device.run(plan, most, None if coming is None else coming - now)
        except ChairliftError as error:
            error.add_note(f"In step {plan.step}, after {now / 1e9:.3f} s of virtual time.")
            raise
        committed = now + done.wall
        self._receive(committed)
        if done.outcome is None:
            self._let_go(self.scheduler.abort(plan, committed), committed)
            return committed
        outcome = done.outcome
        if self._ends and (stops := self._stops(plan, done.times)):
            outcome = replace(outcome, stops=stops)
        streamed = self.scheduler.config.effective_release == "token"
        events = self.scheduler.commit(plan, outcome, committed, done.times)
        if self._answers is not None:
            self._answers.computed(plan, outcome, done.gaps(), committed, streamed=streamed)
        self._let_go(events, committed, streamed=streamed)
        if self._answers is not None:
            if self._steps_wanted:
                preempted = len(events.preempted)
                self._recorder.step(plan, outcome, self._answers.book, committed, preempted=preempted, times=done.times)
            self._show()
        return committed

    def _steps_to_end(self, plan: StepPlan) -> int:
        """How many times the plan may be made until an answer ends of itself."""
        return min((left for _, left in self._lefts(plan)), default=1 << 62)

    def _stops(self, plan: StepPlan, times: int) -> dict[int, FinishReason]:
        """Who ends of itself with the last of so many steps."""
        return {row: FinishReason.STOP for row, left in self._lefts(plan) if left == times}

    def _lefts(self, plan: StepPlan) -> Iterable[tuple[int, int]]:
        """For rows whose answers end of themselves: how many tokens they have to go."""
        ends = self._ends
        for row, name in enumerate(plan.request_ids):
            if (end := ends.get(name)) is not None and plan.samples[row]:
                yield row, end - (plan.starts[row] + plan.counts[row] - plan.paddings[row])

    # what comes and goes

    def _coming(self) -> Nanoseconds | None:
        """When something comes next."""
        following = self._source.next()
        if self._limit is not None and (following is None or following > self._limit):
            return self._limit
        return following

    def _after(self, wait: Wait) -> Nanoseconds | None:
        """When to go on after a wait; None when all is done."""
        if wait.reason is Reason.STALLED:
            raise EngineUnhealthy(f"work is pending and cannot be scheduled: {wait.detail}")
        times = [time for time in (wait.until, self._coming()) if time is not None]
        if times and (self.scheduler.has_work or self._source.next() is not None):
            return min(times)
        if self.scheduler.has_work:
            raise EngineUnhealthy(
                f"{len(self._held)} requests wait for a batch that will never fill, since nobody else comes before one "
                f"of them is answered: lower --batch-size {self.scheduler.config.batch_size}, or set --max-wait."
            )
        return None

    def _receive(self, before: Nanoseconds) -> None:
        """Whatever comes before a time, in flight or between steps."""
        if self._limit is not None:
            before = min(before, self._limit + 1)
        while events := self._source.take(before):
            for event in events:
                self._handle(event)

    def _handle(self, event: Event) -> None:
        match event:
            case Arrival():
                self._submit(event)
            case Departure(time, request_id):
                self._let_go(self.scheduler.cancel(request_id, time), time)
            case Switch(time, policy, changes):
                self._let_go(self.scheduler.switch_policy(policy, time, **changes), time)
            case InputEnd(time):
                self.scheduler.end_input(time)

    def _submit(self, arrival: Arrival) -> None:
        request = arrival.request
        verdict = self.scheduler.submit(request, arrival.time)
        if isinstance(verdict, Refused):
            known = self._refusals.get(verdict.reason)
            example = known.example if known else verdict.message
            self._refusals[verdict.reason] = Refusals(known.count + 1 if known else 1, example)
            self._source.refused(arrival, verdict)
            return
        self._held[request.request_id] = None
        if arrival.output_tokens is not None and arrival.output_tokens < verdict.max_tokens:
            self._ends[request.request_id] = len(request.prompt) + arrival.output_tokens
        if self._answers is not None:
            self._answers.book.add(SimulatedAnswer(request, arrival.time))

    def _let_go(self, events: StepEvents, now: Nanoseconds, *, streamed: bool = False) -> None:
        """Results leave. Where each token has left in the step that computed it, only ends are left to see."""
        self._note(events.decisions, now)
        if self._answers is not None and not streamed and events.request_ids:
            self._answers.released(events, now)
        for finished in events.finished:
            name = finished.request_id
            del self._held[name]
            self._ends.pop(name, None)
            if self._answers is not None:
                answer = self._answers.book.remove(name)
                policy = self.scheduler.config.policy
                self._recorder.request(answer.record(policy, now, finished.reason, finished.message))
            self._source.ended(name, now, well=finished.reason in _ANSWERED)

    def _note(self, decisions: Sequence[Decision], now: Nanoseconds) -> None:
        if decisions and self._answers is not None:
            self._answers.book.note(decisions, now)
            if self._steps_wanted:
                self._recorder.decisions(decisions, now)

    def _show(self) -> None:
        for record in self._recorder.pending():
            for observer in self._observers:
                show(observer, record)

    # the end

    def _end_early(self, now: Nanoseconds) -> SimulationResult:
        """The time limit has come."""
        self._cut = len(self._held)
        for name in tuple(self._held):
            self._let_go(self.scheduler.cancel(name, now), now)
        return self._result(now)

    def _result(self, now: Nanoseconds) -> SimulationResult:
        self._show()
        counters = self.scheduler.counters
        return SimulationResult(
            started=self._start,
            ended=now,
            ledger=self.scheduler.ledger.report(now),
            counters=replace(counters, finished=dict(counters.finished)),
            refusals=dict(self._refusals),
            plans=self._plans,
            cut=self._cut,
        )


def _wants_steps(observer: Observer) -> bool:
    return any(getattr(getattr(observer, name), "__func__", None) is not getattr(Observer, name) for name in _OF_STEPS)
