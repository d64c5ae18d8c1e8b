"""How a closed batch forms: who is in it, what it reserves, and what it will take."""

from __future__ import annotations

from itertools import islice

from chairlift.core.admission import blocks_for
from chairlift.core.batchers.members import Member
from chairlift.core.plan import BatchForecast
from chairlift.core.reasons import Reason
from chairlift.core.request import Nanoseconds
from chairlift.core.sequence import Sequence
from chairlift.core.state import SchedulerState
from chairlift.core.steptime import StepCost, StepFeatures, StepTimePredictor


def form(state: SchedulerState, size: int) -> list[Member]:
    """Take a batch of at most `size` out of the queue, blocks reserved; empty when the pool refuses even the first.

    The oldest waiting request is in it, whatever the queue order, and then the next in order, up to the first whose
    reservation does not fit beside the others'.
    """
    longest, chosen = _fitting(state, size)
    padded = state.config.effective_padding == "longest"
    members = []
    for sequence in chosen:
        if not state.admit(sequence, _positions(state, sequence, longest)):
            break
        members.append(Member(sequence, longest if padded else sequence.length))
    return members


def forecast(
    state: SchedulerState, members: list[Member], reason: Reason, predictor: StepTimePredictor
) -> BatchForecast:
    """What a batch that has just formed will take: blocks exactly, steps and duration at most."""
    prefill = _prefill_steps(members, state.config.max_num_batched_tokens)
    decode_steps = max(member.sequence.most_tokens - member.known for member in members) - 1
    cost = predictor.cost()
    return BatchForecast(
        batch=state.counters.batches,
        members=len(members),
        reason=reason,
        blocks=len({block for member in members for block in member.sequence.table}),
        prefill_steps=len(prefill),
        decode_steps=decode_steps,
        duration=_duration(cost, prefill, members, decode_steps) if cost else None,
    )


def _fitting(state: SchedulerState, size: int) -> tuple[int, list[Sequence]]:
    """The longest prompt of the batch, and its sequences."""
    oldest = state.queue.oldest()
    candidates = [oldest, *islice((s for s in state.queue if s is not oldest), size - 1)] if oldest else []
    pool = state.pool
    chosen: list[Sequence] = []
    longest = shared = 0
    for sequence in candidates:
        stretched = max(longest, sequence.length)
        matched = state.matched(sequence)
        # Blocks that somebody uses are shared for nothing; idle ones leave the free blocks like new ones.
        in_use = len(matched) - pool.idle(matched)
        held = [_positions(state, member, stretched) for member in (*chosen, sequence)]
        needed = sum(blocks_for(positions, pool.block_size) for positions in held) - shared - in_use
        if needed > pool.free_blocks:
            numbers = {"needed": needed, "free_blocks": pool.free_blocks, "members": len(chosen)}
            state.decide(sequence, Reason.CUT_BY_MEMORY, numbers)
            break
        chosen.append(sequence)
        longest, shared = stretched, shared + in_use
    return longest, chosen


def _positions(state: SchedulerState, sequence: Sequence, longest: int) -> int:
    """What a member holds: its own reservation, and room for the padding."""
    padding = longest if state.config.effective_padding == "longest" else 0
    return max(state.reservation(sequence), padding)


def _prefill_steps(members: list[Member], budget: int) -> list[StepFeatures]:
    """The prefill's steps as they will be, if nobody fails or leaves."""
    left = [member.target - member.position for member in members]
    steps = []
    while left := [tokens for tokens in left if tokens > 0]:
        chunk = budget // len(left)
        steps.append(StepFeatures(sum(min(chunk, tokens) for tokens in left), rows=0, context=0))
        left = [tokens - chunk for tokens in left]
    return steps


def _duration(cost: StepCost, prefill: list[StepFeatures], members: list[Member], decode_steps: int) -> Nanoseconds:
    context = sum(member.known + 1 for member in members)
    return sum(map(cost.time, prefill)) + cost.decode_run(rows=len(members), context=context, steps=decode_steps)
