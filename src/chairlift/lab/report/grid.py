"""Who had which slot when, and what was computed in it: exactly as the engine recorded it.

A slot is a row of the batch. A request has one from the first step in which it has a row to the last one before it is
preempted or has ended, be it that it rests in between (its prompt waits for the step's token budget, say); a member of
a closed batch keeps its own to the batch's end. Slots are taken from the lowest up, so that the picture is as high as
the batch was wide.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from chairlift.core.errors import RecordError
from chairlift.core.reasons import Reason
from chairlift.core.request import Nanoseconds
from chairlift.records.reader import Run
from chairlift.records.schema import DecisionRecord, ShareRecord, StepRecord

TOKEN_KINDS = ("prefill", "decode", "recompute", "padding", "dead")
"""In the order in which one row's tokens of one step are drawn."""
Counts = tuple[int, int, int, int, int]
"""Tokens, in the order of TOKEN_KINDS."""
NOTHING: Counts = (0, 0, 0, 0, 0)
_ENTRIES = (Reason.ADMITTED, Reason.RESUMED)
"""How a stay begins. A preempted request comes again, and an id may be used again once its request has left."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Successive records of steps in which a request's share was the same."""

    first: int
    """Index of the first step's record."""
    end: int
    """Index behind the last."""
    share: Counts
    """Tokens of each step; none: it had the slot and rested."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A request in a slot."""

    request_id: str
    slot: int
    stretches: tuple[Stretch, ...]
    """In order, without holes."""

    @property
    def first(self) -> int:
        return self.stretches[0].first

    @property
    def end(self) -> int:
        return self.stretches[-1].end


@dataclass(frozen=True, slots=True)
class Grid:
    """A run's steps, and all stays in its slots."""

    steps: tuple[StepRecord, ...]
    slots: int
    """As many as were taken at once, at the most."""
    stays: tuple[Stay, ...]
    """In order of their beginning."""
    starts: tuple[Nanoseconds, ...] = field(repr=False)
    """Of the steps' records."""
    ends: tuple[Nanoseconds, ...] = field(repr=False)
    repeats: tuple[int, ...] = field(repr=False)
    """Steps before each record, and in all."""

    @classmethod
    def of(cls, run: Run) -> Grid | None:
        """Of an engine's or a simulation's run; None where it has no steps, or is of a version without shares.

        Raises:
            RecordError: the records are damaged, or do not agree with each other.
        """
        shares = run.shares()
        return None if shares is None else grid(run.steps(), shares, run.decisions())

    def counts(self, first: int, end: int) -> Counts:
        """Tokens of those records of steps, as the steps themselves say."""
        return total(
            (step.prefill, step.decode, step.recompute, step.padding, step.dead) for step in self.steps[first:end]
        )


def grid(
    steps: Sequence[StepRecord], shares: Iterable[ShareRecord], decisions: Iterable[DecisionRecord] = ()
) -> Grid | None:
    """From records in order of time; None without steps.

    Raises:
        RecordError: a share is of a step that is not there.
    """
    if not steps:
        return None
    numbers = [step.step for step in steps]
    last_number = numbers[-1] + steps[-1].repeats
    entries: dict[str, list[int]] = {}
    for decision in decisions:
        if decision.reason in _ENTRIES:
            entries.setdefault(decision.request_id, []).append(bisect_left(numbers, decision.step))
    told: dict[str, list[tuple[int, Counts]]] = {}
    for share in shares:
        at = bisect_left(numbers, share.step)
        if at == len(numbers) or numbers[at] != share.step:
            if share.step >= last_number:
                continue  # its step was never recorded: the process was killed in between
            raise RecordError(f"there is a share of step {share.step}, and no record of a step begins with it.")
        counts = (share.prefill, share.decode, share.recompute, share.padding, share.dead)
        told.setdefault(share.request_id, []).append((at, counts))
    loose = [
        stay for name, changes in told.items() for stay in _stays(name, changes, entries.get(name, ()), len(steps))
    ]
    stays, slots = _seated(sorted(loose, key=lambda stay: stay.first))
    return Grid(
        steps=tuple(steps),
        slots=slots,
        stays=tuple(stays),
        starts=tuple(step.planned for step in steps),
        ends=tuple(step.committed for step in steps),
        repeats=tuple(accumulate((step.repeats for step in steps), initial=0)),
    )


def total(several: Iterable[Counts]) -> Counts:
    """Kind by kind."""
    prefill = decode = recompute = padding = dead = 0
    for one in several:
        prefill += one[0]
        decode += one[1]
        recompute += one[2]
        padding += one[3]
        dead += one[4]
    return prefill, decode, recompute, padding, dead


def _stays(name: str, changes: Sequence[tuple[int, Counts]], entries: Sequence[int], end: int) -> Iterable[Stay]:
    """A request's stretches, parted where it was admitted again. They have no slots yet."""
    stretches: list[Stretch] = []
    for stretch in _stretches(changes, end):
        if stretches and any(stretches[-1].first < entry <= stretch.first for entry in entries):
            yield from _stay(name, stretches)
            stretches = []
        stretches.append(stretch)
    yield from _stay(name, stretches)


def _stretches(changes: Sequence[tuple[int, Counts]], end: int) -> Iterable[Stretch]:
    for (at, counts), (until, _) in pairwise([*changes, (end, NOTHING)]):
        if at < until:
            yield Stretch(at, until, counts)


def _stay(name: str, stretches: Sequence[Stretch]) -> Iterable[Stay]:
    """Without rests at the ends: a request rests only between two steps that it is in."""
    rows = [at for at, stretch in enumerate(stretches) if stretch.share != NOTHING]
    if rows:
        yield Stay(name, -1, tuple(stretches[rows[0] : rows[-1] + 1]))


def _seated(stays: Sequence[Stay]) -> tuple[list[Stay], int]:
    """Each in the lowest slot that is free, and how many slots that takes."""
    taken: list[tuple[int, int]] = []
    free: list[int] = []
    seated, slots = [], 0
    for stay in stays:
        while taken and taken[0][0] <= stay.first:
            heapq.heappush(free, heapq.heappop(taken)[1])
        if free:
            slot = heapq.heappop(free)
        else:
            slot, slots = slots, slots + 1
        heapq.heappush(taken, (stay.end, slot))
        seated.append(replace(stay, slot=slot))
    return seated, slots
