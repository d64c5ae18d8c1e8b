"""What one step computes, and what came of it. Plans are columns: row i of each column is one sequence's share.

    row        request_ids[i], kinds[i], tables[i]
    computes   counts[i] tokens, at positions starts[i] .. starts[i] + counts[i] - 1
    of which   paddings[i] at the end are right-hand padding: computed and written, later overwritten
    samples    samples[i]: whether the logits at the last token that is not padding yield a new token

Rows with one token (decode, dead) come first, rows with prompt tokens after them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol, TypeAlias

from chairlift.core.reasons import Decision, Reason
from chairlift.core.request import FinishReason, Nanoseconds, TokenId

BlockTable: TypeAlias = "array[int]"
"""KV block ids of one sequence in order of position, as array('i') (signed 32 bit), so that a runner can join
tables without looking at them. Owned by the scheduler: valid until the plan is committed or aborted."""


class RowKind(IntEnum):
    """What a row is for."""

    DECODE = 0
    """The newest token of a running answer."""
    DEAD = 1
    """A finished or cancelled member of a closed batch: its last token, computed over and over for nothing."""
    PREFILL = 2
    """A prompt, or a chunk of one."""
    RECOMPUTE = 3
    """Like PREFILL, begun with positions that were computed before a preemption."""


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens by kind. Every computed token is of exactly one kind."""

    prefill: int = 0
    """Prompt tokens, computed for the first time."""
    decode: int = 0
    """Generated tokens, computed for the first time."""
    recompute: int = 0
    """Paid again after a preemption."""
    padding: int = 0
    """Right-hand padding of a closed batch's prompts."""
    dead: int = 0
    """Rows of closed-batch members that had ended."""

    @property
    def total(self) -> int:
        """All computed tokens."""
        return self.prefill + self.decode + self.recompute + self.padding + self.dead

    @property
    def useful(self) -> int:
        """Prefill and decode: the tokens somebody asked for."""
        return self.prefill + self.decode

    def __add__(self, other: TokenCounts) -> TokenCounts:
        return TokenCounts(
            self.prefill + other.prefill,
            self.decode + other.decode,
            self.recompute + other.recompute,
            self.padding + other.padding,
            self.dead + other.dead,
        )


@dataclass(frozen=True, slots=True)
class BatchForecast:
    """What a closed batch will take, computed before it starts."""

    batch: int
    """Serial number of the batch."""
    members: int
    reason: Reason
    """Why it left."""
    blocks: int
    """KV blocks it reserves: exact, each counted once however many members share it."""
    prefill_steps: int
    decode_steps: int
    """Upper bound: the largest max_tokens among the members, less the token that the prefill yields."""
    duration: Nanoseconds | None
    """Upper bound from the steps above and the step predictor; None while that has not seen enough steps."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step, frozen. At most one plan is in flight; it ends in commit() or abort()."""

    step: int
    """Counts committed steps; an aborted plan's number is used again."""
    now: Nanoseconds
    policy: str
    request_ids: tuple[str, ...]
    kinds: tuple[RowKind, ...]
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    paddings: tuple[int, ...]
    samples: tuple[bool, ...]
    tokens: Sequence[TokenId]
    """Input ids of all rows one after the other; len == sum(counts). Padding is id 0. A tuple, or TokenRuns where
    prompts are."""
    tables: tuple[BlockTable, ...]
    """At least ceil((starts[i] + counts[i]) / block_size) blocks in row i; a reservation may hold more."""
    single_token_rows: int
    """How many rows at the front have exactly one token (decode and dead rows)."""
    token_counts: TokenCounts
    shares: tuple[TokenCounts, ...] = ()
    """For each row with prompt tokens, in order: its tokens by kind. With a token for each row before them,
    token_counts is their sum."""
    decisions: tuple[Decision, ...] = ()
    forecast: BatchForecast | None = None
    """Set on the first step of a closed batch."""

    def __len__(self) -> int:
        """Rows."""
        return len(self.request_ids)

    @property
    def sampled_rows(self) -> tuple[int, ...]:
        """Indices of the rows that yield a token, ascending."""
        return tuple(i for i, samples in enumerate(self.samples) if samples)


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to compute now."""

    until: Nanoseconds | None
    """When plan() is worth calling again if nothing happens before; None: only an event can change it."""
    reason: Reason
    detail: str = ""
    """For STALLED: the cause, in words."""


class StepTimes(Protocol):
    """How long the device worked in each repeat of a plan."""

    def __call__(self, repeat: int, /) -> Nanoseconds:
        """Its time in repeat 0, 1, ..."""
        ...


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What the device made of a plan."""

    tokens: Sequence[TokenId]
    """One id per sampled row, in row order (any id for a row that failed). After a jump of n repeats: n such
    groups one after the other."""
    device_time: Nanoseconds
    """How long the device worked; after a jump, in all repeats. What is left of plan() to commit() is booked as host
    time."""
    failures: Mapping[int, str] = field(default_factory=dict)
    """Row index to message: that request ends with an error, the others are not concerned. Not after a jump."""
    stops: Mapping[int, FinishReason] = field(default_factory=dict)
    """Row index to reason: the engine ends that request with this step's token (a stop string, say); after a jump, with
    the last token."""
    times: StepTimes | None = None
    """After a jump: how device_time divides among the repeats. None: evenly."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A request has ended and its KV blocks are free (or will be when its closed batch ends)."""

    request_id: str
    reason: FinishReason
    output_tokens: int
    message: str = ""
    """For FinishReason.ERROR: what failed."""


@dataclass(frozen=True, slots=True)
class StepEvents:
    """What a commit (or an abort or cancel that set something free) tells the world."""

    request_ids: Sequence[str] = ()
    """Column: whose token. A request may occur more than once, when a closed batch releases its results."""
    tokens: Sequence[TokenId] = ()
    """Column beside request_ids: tokens *released* now, in order."""
    finished: tuple[Finished, ...] = ()
    """Results that left: after their last token in the columns above."""
    preempted: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()

    @staticmethod
    def joined(parts: Iterable[StepEvents]) -> StepEvents:
        """Several events in order, as one."""
        parts = [part for part in parts if part != StepEvents()]
        if len(parts) == 1:
            return parts[0]
        return StepEvents(
            request_ids=[name for part in parts for name in part.request_ids],
            tokens=[token for part in parts for token in part.tokens],
            finished=tuple(one for part in parts for one in part.finished),
            preempted=tuple(name for part in parts for name in part.preempted),
            decisions=tuple(decision for part in parts for decision in part.decisions),
        )
