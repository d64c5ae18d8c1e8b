"""Drives an engine through a timed list of requests, in one thread: what a demonstration or an in-process study needs.

Arrivals are open loop: a request counts from the moment it was due, whether or not a step was running then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chairlift.core.errors import EngineUnhealthy
from chairlift.core.ledger import LedgerReport
from chairlift.core.request import Nanoseconds, TokenId
from chairlift.engine.core import EngineCore
from chairlift.engine.outputs import OutputDelta
from chairlift.engine.params import SamplingParams
from chairlift.records.observer import Observer
from chairlift.records.schema import RequestRecord

Sleep = Callable[[Nanoseconds], None]


@dataclass(frozen=True, slots=True)
class TimedRequest:
    """One request and when it is due."""

    request_id: str
    due: Nanoseconds
    """After the start of the drive."""
    prompt: Sequence[TokenId]
    params: SamplingParams


@dataclass(frozen=True, slots=True)
class Drive:
    """What came of it."""

    started: Nanoseconds
    """On the engine's clock: the zero of every `due`."""
    ended: Nanoseconds
    """When the last result had left."""
    requests: tuple[RequestRecord, ...]
    """In the order in which they left."""
    ledger: LedgerReport

    @property
    def wall(self) -> Nanoseconds:
        return self.ended - self.started


class _Collector(Observer):
    def __init__(self) -> None:
        self.requests: list[RequestRecord] = []

    def on_request(self, record: RequestRecord) -> None:
        self.requests.append(record)


def drive(core: EngineCore, schedule: Sequence[TimedRequest], sleep: Sleep) -> Drive:
    """Submit each request when it is due, and step until the last result has left.

    Args:
        core: an engine that nobody else steps and that has done nothing yet (its ledger starts here).
        schedule: in order of `due`.
        sleep: waits for so many nanoseconds of the engine's clock.

    Raises:
        RequestRefused: a request can never run.
        EngineUnhealthy: work is pending and cannot be scheduled.
    """
    collector = _Collector()
    core.attach(collector)
    started = core.now()
    coming = list(reversed(schedule))
    if not coming:
        core.end_input()
    while coming or core.has_work:
        _submit_due(core, coming, started)
        wait = core.step()
        if wait is None:
            continue
        wakes = [moment for moment in (wait.until, started + coming[-1].due if coming else None) if moment is not None]
        if wakes:
            sleep(max(0, min(wakes) - core.now()))
        elif core.has_work:
            raise EngineUnhealthy(wait.detail or f"work is pending, and nothing will change: {wait.reason}.")
    core.detach(collector)
    ended = core.now()
    return Drive(started, ended, tuple(collector.requests), core.stats().ledger)


def _submit_due(core: EngineCore, coming: list[TimedRequest], started: Nanoseconds) -> None:
    """Whoever is due by now arrives; with the last of them the input is at its end."""
    with core.together():
        now = core.now()
        while coming and started + coming[-1].due <= now:
            one = coming.pop()
            core.submit(one.prompt, one.params, request_id=one.request_id, sink=_drop, arrival=started + one.due)
            if not coming:
                core.end_input()


def _drop(delta: OutputDelta) -> None:
    """The records tell all that is wanted."""
