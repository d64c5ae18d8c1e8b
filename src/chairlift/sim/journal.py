"""A journal of the engine, lived through again in virtual time: the same comings at the same times, steps that take as
long as they took, and, if the simulator is right, the same plans in the same order.

Unlike chairlift.core.journal.replay(), which makes the recorded calls one after the other, this is the simulator's own
loop; only times and tokens come from the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from chairlift.core.config import KVCapacity, SchedulerConfig
from chairlift.core.errors import ReplayError
from chairlift.core.journal import (
    Aborted,
    Cancelled,
    Committed,
    Entry,
    InputEnded,
    Planned,
    Submitted,
    Switched,
    fingerprint,
)
from chairlift.core.plan import StepPlan
from chairlift.core.request import Nanoseconds, Refused
from chairlift.core.work import ModelShape
from chairlift.records.observer import Observer
from chairlift.runners.simulated import Execution
from chairlift.sim.events import Arrival, Departure, Event, InputEnd, Switch
from chairlift.sim.loop import Simulation, SimulationResult


def simulate_journal(
    entries: Sequence[Entry],
    config: SchedulerConfig,
    capacity: KVCapacity,
    *,
    shape: ModelShape | None = None,
    observers: Iterable[Observer] = (),
    journal: list[Entry] | None = None,
) -> SimulationResult:
    """Simulate what a journal recorded.

    Args:
        entries: a whole journal, from a scheduler's first call on.
        config: the settings that the scheduler was made with.
        capacity: its KV pool.
        shape: the model's sizes, for the records.
        observers: shown every record.
        journal: appended to, as the engine's was.

    Raises:
        ReplayError: a plan differs from the recorded one, or the entries are not in an order that can have happened.
    """
    recorded = RecordedDevice(entries, capacity, shape)
    start = entries[0].now if entries else 0
    return Simulation(config, recorded, recorded, observers=observers, journal=journal, start=start).run()


class RecordedDevice:
    """A journal as source and device of a simulation: events come, and steps take, as they did."""

    def __init__(self, entries: Sequence[Entry], capacity: KVCapacity, shape: ModelShape | None = None) -> None:
        self._entries = entries
        self._capacity = capacity
        self._shape = shape
        self._at = 0
        """The entry that comes next."""
        self._in_flight = False

    def capacity(self) -> KVCapacity:
        return self._capacity

    def shape(self) -> ModelShape | None:
        return self._shape

    def ready(self, now: Nanoseconds) -> Nanoseconds:
        """When the engine looked for a plan, or when something came before it did."""
        entry = self._entry()
        if entry is None or entry.now > now:
            return now if entry is None else entry.now
        if isinstance(entry, Planned):
            self._at += 1
        return now

    def run(
        self,
        plan: StepPlan,
        most: int = 1,  # noqa: ARG002 - how often it was repeated is in the journal
        within: Nanoseconds | None = None,  # noqa: ARG002 - and so is what came meanwhile
    ) -> Execution:
        """The step as it went."""
        planned = self._entries[self._at - 1] if self._at else None
        if not isinstance(planned, Planned) or planned.fingerprint != fingerprint(plan):
            raise ReplayError(f"entry {self._at - 1}: the plan at {plan.now} ns is not the one that was recorded.")
        for entry in self._entries[self._at :]:
            match entry:
                case Committed(now, outcome, times):
                    self._in_flight = True
                    return Execution(times, outcome, now - plan.now)
                case Aborted(now):
                    self._in_flight = True
                    return Execution(1, None, now - plan.now)
                case Planned():
                    break
        raise ReplayError(f"entry {self._at - 1} plans a step, and nothing came of it.")

    def next(self) -> Nanoseconds | None:
        entry = self._entry()
        return None if entry is None else entry.now

    def take(self, before: Nanoseconds) -> Sequence[Event]:
        events: list[Event] = []
        while (entry := self._entry()) is not None and not isinstance(entry, Planned | Committed | Aborted):
            if entry.now >= before and not self._in_flight:
                break
            events.append(_event(entry))
            self._at += 1
        if not events and self._in_flight:
            self._in_flight = False
            self._at += 1  # its end
        return events

    def refused(self, arrival: Arrival, verdict: Refused) -> None:
        """It was then, too."""

    def ended(self, request_id: str, now: Nanoseconds, *, well: bool) -> None:
        """What its client did next is in the journal."""

    def _entry(self) -> Entry | None:
        return self._entries[self._at] if self._at < len(self._entries) else None


def _event(entry: Submitted | Cancelled | Switched | InputEnded) -> Event:
    match entry:
        case Submitted(now, request):
            return Arrival(now, request if request.arrival is not None else replace(request, arrival=now))
        case Cancelled(now, request_id):
            return Departure(now, request_id)
        case Switched(now, policy, changes):
            return Switch(now, policy, changes)
        case InputEnded(now):
            return InputEnd(now)
