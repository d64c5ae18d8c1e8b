"""The vocabulary of scheduling decisions: why something happened, or did not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a request runs, waits or ends, why a batch leaves or is held, why the door stayed shut."""

    # at the door
    ACCEPTED = "accepted"
    PROMPT_EMPTY = "prompt_empty"
    DUPLICATE_ID = "duplicate_id"
    PROMPT_TOO_LONG = "prompt_too_long"
    """Prompt plus what it may generate exceeds max_model_len."""
    NEVER_FITS = "never_fits"
    """It would need more KV blocks than the whole pool has."""
    QUEUE_FULL = "queue_full"
    """max_queued_requests or max_queued_tokens is reached."""
    INVALID = "invalid"
    """A field of the request makes no sense (such as max_tokens below 1)."""

    # how a request got into a step
    ADMITTED = "admitted"
    """Left the queue; its KV blocks are reserved."""
    CHUNKED = "chunked"
    """Its prompt is computed in pieces, because the step's token budget ends before it does."""
    DECODING = "decoding"
    """Its prompt is complete: one token a step from here."""
    RESUMED = "resumed"
    """Admitted again after a preemption; what it had computed is paid again."""

    # why the queue does not move
    WAITING_FOR_TURN = "waiting_for_turn"
    """Others are before it in the queue."""
    WAITING_FOR_BATCH = "waiting_for_batch"
    """A closed batch is running, or is not full yet."""
    WAITING_FOR_SLOT = "waiting_for_slot"
    """max_num_seqs sequences run already."""
    WAITING_FOR_BLOCKS = "waiting_for_blocks"
    """Its prompt does not fit in the free KV blocks (less the watermark)."""
    WAITING_FOR_BUDGET = "waiting_for_budget"
    """This step's max_num_batched_tokens is spent."""
    WAITING_FOR_INTERVAL = "waiting_for_interval"
    """prefill_interval keeps this step for decodes."""
    WAITING_FOR_LATENCY = "waiting_for_latency"
    """target_itl leaves no room for more prompt tokens in this step."""
    WAITING_FOR_SWITCH = "waiting_for_switch"
    """A policy switch drains what runs before anything new is let in."""

    # why a closed batch leaves, or is held
    BATCH_FULL = "batch_full"
    PREFERRED_SIZE = "preferred_size"
    DELAY_OVER = "delay_over"
    NO_DELAY = "no_delay"
    MAX_WAIT_OVER = "max_wait_over"
    END_OF_INPUT = "end_of_input"
    BATCH_NOT_FULL = "batch_not_full"
    CUT_BY_MEMORY = "cut_by_memory"
    """The batch left with fewer members: the next one's reservation does not fit beside them."""

    # how a running sequence stops
    PREEMPTED = "preempted"
    """Its KV blocks were taken, because an earlier one needed them; it keeps its place in the queue."""
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"

    # nothing to do, or nothing can be done
    QUEUE_EMPTY = "queue_empty"
    STALLED = "stalled"
    """Work is pending and cannot be scheduled although nothing runs: a fault, never a policy."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One change of mind about one request: recorded when it changes, not while it lasts."""

    step: int
    """The step it was made for. A reason holds until the request's next decision."""
    request_id: str
    reason: Reason
    numbers: Mapping[str, int]
    """The figures it was made on, such as {"needed": 63, "free": 40}."""
