"""What a run leaves behind: one record for each step, request, decision and closed batch.

Times are integer nanoseconds on the engine's clock (virtual time in a simulation); the manifest says which moment its
zero is. "Committed" is the moment a step's results were in the scheduler.

    steps       what each step computed, how long it took, what it moved, and the queue and pool after it
    shares      whose tokens those were: each request's share of the steps, as often as it changes
    requests    what each request lived through; written when it leaves
    decisions   why: the scheduler's decisions, each with the moment it became known
    batches     closed batches: what was forecast before the start beside what happened

A simulation jumps over steps in which only lengths grow: one row of steps then stands for many. Every count is exact.
A field is None when the moment never came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chairlift.core.request import FinishReason, Nanoseconds
from chairlift.records.gaps import GapRun, Gaps

SCHEMA_VERSION = 1
"""Raised whenever a field changes its meaning or goes; a new field alone does not raise it."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One committed step, or `repeats` equal ones in which only lengths grew. Counts, times and work are sums over the
    repeats; the state is as it stood after the last.
    """

    step: int
    """Serial number of the (first) step; aborted attempts have none."""
    repeats: int
    """How many steps this row stands for."""
    policy: str
    """static, dynamic or continuous, as it was when the step was planned."""
    planned: Nanoseconds
    """ns: when the plan was made."""
    committed: Nanoseconds
    """ns: when the results were in. committed - planned - device_time is the host's share of the step."""
    device_time: Nanoseconds
    """ns: how long the device worked."""
    rows: int
    """Sequences in the step; of each of its repeats, not summed over them."""
    samples: int
    """Rows that yielded a token."""
    failures: int
    """Rows whose request failed in this step."""
    prefill: int
    """Tokens: prompt tokens computed for the first time."""
    decode: int
    """Tokens: generated tokens computed for the first time."""
    recompute: int
    """Tokens: paid again after a preemption."""
    padding: int
    """Tokens: right-hand padding of a closed batch's prompts."""
    dead: int
    """Tokens: rows of closed-batch members that had ended."""
    decode_flops: int
    """Floating-point operations of the one-token rows (a multiply-add is two). 0 when there is no real model."""
    prefill_flops: int
    """Floating-point operations of the rows with prompt tokens."""
    weight_bytes: int
    """Bytes of weights read: all layers once, and the output head if anything was sampled."""
    decode_kv_bytes: int
    """Bytes of keys and values read and written for the one-token rows."""
    prefill_kv_bytes: int
    """Bytes of keys and values read and written for the rows with prompt tokens."""
    running: int
    """Requests that hold KV blocks and have not ended, after the step."""
    waiting: int
    """Requests in the queue, after the step; preempted ones included."""
    waiting_tokens: int
    """Tokens to compute for those that wait."""
    preempted: int
    """Requests preempted while this step was planned."""
    kv_used: int
    """KV blocks held by requests, after the step."""
    kv_cached: int
    """KV blocks that nobody holds, kept for sharing."""
    kv_total: int
    """KV blocks of the pool."""
    batch: int | None = None
    """Serial number of the closed batch the step belongs to; None under continuous."""
    kv_peak: int | None = None
    """Most KV blocks that requests held at once since the step before: who ends in this step still holds his. None: in
    a record from before there was this field."""

    @property
    def kv_most(self) -> int:
        """kv_peak, or where that is not known kv_used."""
        return self.kv_used if self.kv_peak is None else self.kv_peak


@dataclass(frozen=True, slots=True)
class ShareRecord:
    """A request's share of this step, and of each step after it until the request's next record: its tokens by kind.
    All zero: it has no row from here on. Over all requests they sum to the step's own counts.
    """

    step: int
    """The first step with this share."""
    request_id: str
    """Whose row it is."""
    prefill: int
    """Tokens of each step, by kind as in a step's record: prompt tokens computed for the first time."""
    decode: int
    """Generated tokens computed for the first time."""
    recompute: int
    """Paid again after a preemption."""
    padding: int
    """Right-hand padding."""
    dead: int
    """A row of a closed batch's member that had ended."""


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request, from its arrival to the moment its result left. Requests refused at the door leave none."""

    request_id: str
    """Unique among the requests held at the same time."""
    policy: str
    """The policy when the request left."""
    arrival: Nanoseconds
    """ns: when it was due. Every latency counts from here."""
    prompt_tokens: int
    """Tokens of the prompt."""
    cached_tokens: int
    """Of these, found in the prefix cache when it was first admitted."""
    output_tokens: int
    """Tokens generated."""
    preemptions: int
    """How often its KV blocks were taken from it."""
    admitted: Nanoseconds | None
    """ns: when it first left the queue."""
    first_token_computed: Nanoseconds | None
    """ns: when the step of its first token was committed."""
    first_token_released: Nanoseconds | None
    """ns: when its first token left the engine; later than computed where results are held back."""
    finished: Nanoseconds | None
    """ns: when its last token was computed, or it was cancelled, or it failed."""
    released: Nanoseconds
    """ns: when its result left."""
    streamed: bool
    """Whether every token left in the step that computed it. Where it did not, nobody outside can observe the time
    between tokens."""
    finish_reason: FinishReason
    """stop, length, cancelled or error."""
    error: str = ""
    """For error: what failed."""
    token_gaps: tuple[Nanoseconds, ...] = ()
    """ns: time from each token to the next, as computed; output_tokens - 1 of them. Empty where gap_runs has them;
    `gaps` has them either way."""
    gap_runs: tuple[GapRun, ...] = ()
    """ns: the same of a simulated request, as runs [gaps, base, start, step, divisor]: so many gaps, each of them
    base + (start + k x step) // divisor for k = 0, 1, ..."""

    @property
    def gaps(self) -> Sequence[Nanoseconds]:
        """ns: time from each token to the next, as computed, however it was kept."""
        return Gaps(self.gap_runs) if self.gap_runs else self.token_gaps


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One change of mind of the scheduler about one request; it holds until the request's next one."""

    time: Nanoseconds
    """ns: the plan or commit that it came with."""
    step: int
    """The step it was made for."""
    request_id: str
    """Whom it is about."""
    reason: str
    """A word of chairlift.core.reasons.Reason."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """The figures it was made on."""


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One closed batch: the forecast made before it started, and what happened."""

    batch: int
    """Serial number."""
    policy: str
    """static or dynamic."""
    reason: str
    """Why it left: batch_full, preferred_size, delay_over, no_delay, max_wait_over or end_of_input."""
    members: int
    """Requests in it."""
    forecast_blocks: int
    """KV blocks reserved: exact, since the reservation is made at once."""
    forecast_steps: int
    """Upper bound of its steps: prefill and decode."""
    forecast_time: Nanoseconds | None
    """ns: upper bound of its duration by the step predictor; None while that had seen too few steps."""
    started: Nanoseconds
    """ns: when its first step was planned."""
    ended: Nanoseconds
    """ns: when its last step was committed."""
    steps: int
    """Steps it took."""
    peak_blocks: int
    """Most KV blocks that requests held while it ran, as seen after each step."""


Record = StepRecord | ShareRecord | RequestRecord | DecisionRecord | BatchRecord
