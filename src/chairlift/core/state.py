"""What the scheduler owns: queue, sequences, blocks, decisions and counters, and the only functions that change them.

Invariants, whatever the policy:
  - a waiting sequence holds no blocks; an ended one holds them only while its closed batch runs;
  - a sequence's table holds at least `computed` positions, and only its own row writes past its shared prefix;
  - a block is published only after a commit has confirmed its content.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

from chairlift.core.admission import blocks_for, most_tokens_of
from chairlift.core.blocks import BlockId, BlockPool, chain_keys, root_key
from chairlift.core.config import KVCapacity, SchedulerConfig
from chairlift.core.plan import Finished
from chairlift.core.queue import WaitingQueue
from chairlift.core.reasons import Decision, Reason
from chairlift.core.request import FinishReason, Nanoseconds, Request
from chairlift.core.runs import ContentKey, TokenRuns, run_keys
from chairlift.core.sequence import Phase, Sequence


@dataclass(slots=True)
class Counters:
    """What has happened since the start. Every accepted request ends in exactly one of `finished`."""

    accepted: int = 0
    refused: int = 0
    finished: dict[FinishReason, int] = field(default_factory=lambda: dict.fromkeys(FinishReason, 0))
    prompt_tokens: int = 0
    """Prompt tokens of accepted requests."""
    output_tokens: int = 0
    """Generated tokens, released or not."""
    preemptions: int = 0
    prefix_queries: int = 0
    """Prompt tokens looked up at first admission."""
    prefix_hits: int = 0
    """Of these, found; so prompt tokens less these is what prefill computes. A preempted sequence adds only what others
    computed meanwhile beyond its own progress: what it finds of its own is never counted here (vLLM issue 25780).
    """
    recompute_saved: int = 0
    """Tokens that a preempted sequence found again in the cache when it was resumed."""
    batches: int = 0
    """Closed batches launched."""


class SchedulerState:
    """Queue, sequences and blocks of one scheduler."""

    def __init__(self, config: SchedulerConfig, capacity: KVCapacity, pool: BlockPool | None = None) -> None:
        self.config = config
        self.capacity = capacity
        self.pool = pool or BlockPool(capacity.num_blocks, capacity.block_size)
        self.queue = WaitingQueue(config.queue_order)
        self.sequences: dict[str, Sequence] = {}
        self.counters = Counters()
        self.decisions: list[Decision] = []
        """Made since they were last taken."""
        self.step = 0
        """Committed steps so far: the number of the step being planned."""
        self.numbered = 0

    # requests come and go

    def enqueue(self, request: Request, now: Nanoseconds) -> Sequence:
        """Take in a request that passed the gates."""
        sequence = Sequence(
            request,
            number=self.numbered,
            arrival=now if request.arrival is None else request.arrival,
            max_tokens=most_tokens_of(request, self.config, self.capacity) - len(request.prompt),
        )
        self.numbered += 1
        self.counters.accepted += 1
        self.counters.prompt_tokens += sequence.prompt_length
        self.decide(sequence, Reason.ACCEPTED, {"queued": len(self.queue), "queued_tokens": self.queue.tokens})
        self.sequences[request.request_id] = sequence
        self.queue.push(sequence)
        return sequence

    def end(self, sequence: Sequence, reason: FinishReason, message: str = "") -> None:
        """Nothing more is generated for it. Its blocks and its result are still here."""
        if sequence.phase is Phase.WAITING:
            self.queue.remove(sequence)
        sequence.phase = Phase.ENDED
        sequence.finish_reason = reason
        sequence.message = message
        self.counters.finished[reason] += 1
        word = {FinishReason.CANCELLED: Reason.CANCELLED, FinishReason.ERROR: Reason.FAILED}.get(
            reason, Reason.FINISHED
        )
        self.decide(sequence, word, {"output_tokens": sequence.output_length})

    def free(self, sequence: Sequence) -> None:
        """Give back its blocks, if it holds any; what they hold stays known.

        Not so after an error: the next request that begins alike must not read what may have caused it.
        """
        if not sequence.table:
            return
        spoilt = sequence.finish_reason is FinishReason.ERROR
        if not spoilt:
            self.publish(sequence)
        self.pool.release(sequence.table, spoilt=spoilt)
        sequence.room = sequence.published = 0

    def leave(self, sequence: Sequence) -> Finished:
        """An ended sequence's result goes out of the door."""
        del self.sequences[sequence.request_id]
        reason = sequence.finish_reason or FinishReason.ERROR
        return Finished(sequence.request_id, reason, sequence.output_length, sequence.message)

    # blocks

    def keys(self, sequence: Sequence, blocks: int) -> list[ContentKey]:
        """Content keys of at least its first `blocks` full blocks, made once and kept."""
        keys, size = sequence.keys, self.pool.block_size
        known = len(keys)
        if known < blocks:
            request = sequence.request
            if isinstance(request.prompt, TokenRuns):
                run_keys(keys, root_key(request.cache_salt), request.prompt, sequence.output, blocks, size)
            else:
                parent = cast("bytes", keys[-1]) if keys else root_key(request.cache_salt)  # digests, all of them
                keys += chain_keys(parent, sequence.tokens(known * size, blocks * size), size)
        return keys

    def matched(self, sequence: Sequence) -> list[BlockId]:
        """Cached blocks a waiting sequence could share. Its last token is always computed, since its logits are
        needed.
        """
        if not self.config.enable_prefix_caching:
            return []
        blocks = (sequence.length - 1) // self.pool.block_size
        return self.pool.lookup(self.keys(sequence, blocks), blocks)

    def reservation(self, sequence: Sequence) -> int:
        """Positions an admitted sequence holds from the start."""
        match self.config.effective_kv_reservation:
            case "prompt":
                return sequence.length
            case "full":
                return sequence.most_tokens
            case "model_len":
                return self.config.max_model_len

    def blocks_needed(self, sequence: Sequence, positions: int) -> int:
        """Of the free blocks, how many it takes to hold so many positions for a waiting sequence."""
        matched = self.matched(sequence)
        return blocks_for(positions, self.pool.block_size) - len(matched) + self.pool.idle(matched)

    def admit(self, sequence: Sequence, positions: int) -> bool:
        """Reserve its blocks and take it out of the queue; False, and nothing changes, when the pool refuses."""
        size = self.pool.block_size
        matched = self.matched(sequence)
        self.pool.share(sequence.table, matched)
        if not self.pool.allocate(sequence.table, blocks_for(positions, size) - len(matched)):
            self.pool.release(sequence.table)
            return False
        self.queue.remove(sequence)
        sequence.phase = Phase.PREFILL
        sequence.room = len(sequence.table) * size
        sequence.published = len(matched)
        sequence.computed = found = len(matched) * size
        known = sequence.high_water
        self.counters.recompute_saved += min(found, known)
        self.counters.prefix_hits += max(0, min(found, sequence.prompt_length) - known)
        if not sequence.preemptions:
            self.counters.prefix_queries += sequence.length
        return True

    def preempt(self, sequence: Sequence) -> None:
        """Take its blocks; it goes back to its own place in the queue."""
        self.free(sequence)
        sequence.phase = Phase.WAITING
        sequence.high_water = max(sequence.high_water, sequence.computed)
        sequence.computed = 0
        sequence.preemptions += 1
        self.counters.preemptions += 1
        self.queue.push(sequence)

    def publish(self, sequence: Sequence) -> None:
        """Make its computed full blocks known, so that others may share them."""
        if not self.config.enable_prefix_caching:
            return
        full = sequence.computed // self.pool.block_size
        if full > sequence.published:
            self.pool.publish(sequence.table, self.keys(sequence, full), sequence.published, full)
            sequence.published = full

    # decisions

    def decide(self, sequence: Sequence, reason: Reason, numbers: dict[str, int] | None = None) -> None:
        """Note why, if it is not what was said of this request last."""
        if sequence.reason is not reason:
            sequence.reason = reason
            self.decisions.append(Decision(self.step, sequence.request_id, reason, numbers or {}))

    def pass_steps(self, count: int) -> None:
        """So many steps of a jump are over; what was decided while it was in flight came in the last one."""
        self.step += count
        self.decisions = [replace(decision, step=decision.step + count) for decision in self.decisions]

    def take_decisions(self) -> tuple[Decision, ...]:
        """The decisions since the last call."""
        taken = tuple(self.decisions)
        self.decisions.clear()
        return taken
