"""Every call to a scheduler, with its `now` and what the device answered: enough to live through it again.

The scheduler is a pure function of its calls, so that a journal replayed on a new scheduler of the same settings gives
the same plans, bit for bit. Each plan is kept as a fingerprint, which replay() compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zlib import crc32

from chairlift.core.errors import ReplayError
from chairlift.core.plan import StepOutcome, StepPlan, Wait
from chairlift.core.request import Nanoseconds, Request

if TYPE_CHECKING:
    from chairlift.core.config import PolicyName
    from chairlift.core.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Submitted:
    """A request came to the door."""

    now: Nanoseconds
    request: Request


@dataclass(frozen=True, slots=True)
class Planned:
    """A step was asked for."""

    now: Nanoseconds
    fingerprint: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A step, or several equal ones, happened."""

    now: Nanoseconds
    outcome: StepOutcome
    times: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """A step did not happen."""

    now: Nanoseconds


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A request was cancelled."""

    now: Nanoseconds
    request_id: str


@dataclass(frozen=True, slots=True)
class Switched:
    """A policy switch was asked for."""

    now: Nanoseconds
    policy: PolicyName
    changes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InputEnded:
    """Nobody will come any more."""

    now: Nanoseconds


Entry = Submitted | Planned | Committed | Aborted | Cancelled | Switched | InputEnded


def fingerprint(plan: StepPlan | Wait) -> int:
    """32 bits that two plans share when they are equal: rows, positions, tokens, tables, and whoever was decided
    about.
    """
    if isinstance(plan, Wait):
        return crc32(f"wait {plan.until} {plan.reason}".encode())
    singles = plan.single_token_rows
    # Only integers go through hash(): of strings and bytes it differs from process to process. Of one-token rows,
    # positions, tokens and the last block are enough: the rest was in the plans before.
    figures = (
        plan.step,
        singles,
        plan.token_counts.dead,
        plan.starts,
        tuple(plan.tokens),
        plan.counts[singles:],
        plan.paddings[singles:],
        plan.samples[singles:],
        tuple([table[-1] for table in plan.tables[:singles]]),
        tuple([tuple(decision.numbers.values()) for decision in plan.decisions]),
    )
    words = [*plan.request_ids[singles:]]
    for decision in plan.decisions:
        words += (decision.request_id, decision.reason)
    code = crc32("\n".join(words).encode(), hash(figures) & 0xFFFFFFFF)
    return crc32(b"".join((bytes(plan.kinds[singles:]), *plan.tables[singles:])), code)


def replay(entries: Iterable[Entry], scheduler: Scheduler) -> Iterator[StepPlan | Wait]:
    """Make the recorded calls on a new scheduler, yielding each plan before its outcome is applied.

    Raises:
        ReplayError: a plan differs from the recorded one, or the entries are not in an order that can have happened.
    """
    in_flight: StepPlan | None = None
    for number, entry in enumerate(entries):
        match entry:
            case Submitted(now, request):
                scheduler.submit(request, now)
            case Planned(now, recorded):
                plan = scheduler.plan(now)
                if fingerprint(plan) != recorded:
                    raise ReplayError(f"entry {number}: the plan at {now} ns is not the one that was recorded.")
                in_flight = plan if isinstance(plan, StepPlan) else None
                if in_flight is not None:
                    scheduler.horizon(in_flight)  # as whoever jumped has asked: before anything else came
                yield plan
            case Committed(now, outcome, times):
                scheduler.commit(_expected(in_flight, number), outcome, now, times)
            case Aborted(now):
                scheduler.abort(_expected(in_flight, number), now)
            case Cancelled(now, request_id):
                scheduler.cancel(request_id, now)
            case Switched(now, policy, changes):
                scheduler.switch_policy(policy, now, **changes)
            case InputEnded(now):
                scheduler.end_input(now)


def _expected(plan: StepPlan | None, number: int) -> StepPlan:
    if plan is None:
        raise ReplayError(f"entry {number} ends a plan, but none is in flight.")
    return plan
