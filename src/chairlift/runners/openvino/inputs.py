"""A step's columns as the arrays that the graph takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from chairlift.core.plan import BlockTable, RowKind, StepPlan

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class StepInputs:
    """Inputs of one call, named as the graph names them; rows one after the other."""

    input_ids: Int64
    position_ids: Int64
    past_lens: Int32
    subsequence_begins: Int32
    block_indices: Int32
    block_indices_begins: Int32
    max_context_len: Int32
    sampled: Int64
    """Tokens whose logits are computed: those of sampled rows first, in row order, then those of dead rows."""


def step_inputs(plan: StepPlan) -> StepInputs:
    """The arrays of a plan. A dead row's logits are computed too, as in any batch that runs on, and come last."""
    if plan.single_token_rows == len(plan.tokens) and all(plan.samples):
        return decodes_to_inputs(plan.tokens, plan.starts, plan.tables)
    chosen = np.flatnonzero(np.array(plan.samples, np.bool_))
    if plan.token_counts.dead:
        singles = np.array(plan.kinds[: plan.single_token_rows], np.int64)
        chosen = np.concatenate([chosen, np.flatnonzero(singles == RowKind.DEAD)])
    return columns_to_inputs(plan.tokens, plan.starts, plan.counts, plan.paddings, plan.tables, chosen)


def decodes_to_inputs(tokens: Sequence[int], starts: Sequence[int], tables: Sequence[BlockTable]) -> StepInputs:
    """The arrays of rows with one token each, all of whose logits are wanted: most steps, in a quarter of the time."""
    rows = len(starts)
    positions = np.array(starts, np.int64)
    return StepInputs(
        input_ids=np.array(tokens, np.int64),
        position_ids=positions,
        past_lens=positions.astype(np.int32),
        subsequence_begins=np.arange(rows + 1, dtype=np.int32),
        block_indices=np.frombuffer(b"".join(tables), np.int32),
        block_indices_begins=_table_begins(tables),
        max_context_len=np.array(max(starts) + 1, np.int32),
        sampled=np.arange(rows),
    )


def columns_to_inputs(
    tokens: Sequence[int],
    starts: Sequence[int],
    counts: Sequence[int],
    paddings: Sequence[int],
    tables: Sequence[BlockTable],
    logits_of: Int64,
) -> StepInputs:
    """The arrays of rows given as columns.

    Args:
        tokens: ids of all rows, one row after the other.
        starts: first position of each row.
        counts: tokens of each row, padding included.
        paddings: how many of them, at the end, are padding.
        tables: KV blocks of each row; longer than needed is allowed.
        logits_of: rows whose logits are wanted, in the order of the result.
    """
    rows = len(starts)
    first = np.array(starts, np.int64)
    count = np.array(counts, np.int64)
    begins = np.zeros(rows + 1, np.int64)
    np.cumsum(count, out=begins[1:])
    return StepInputs(
        input_ids=np.array(tokens, np.int64),
        position_ids=np.arange(len(tokens)) + np.repeat(first - begins[:-1], count),
        past_lens=first.astype(np.int32),
        subsequence_begins=begins.astype(np.int32),
        block_indices=np.frombuffer(b"".join(tables), np.int32),
        block_indices_begins=_table_begins(tables),
        max_context_len=np.array((first + count).max(), np.int32),
        sampled=(begins[1:] - np.array(paddings, np.int64) - 1)[logits_of],
    )


def accompanied(inputs: StepInputs, scratch_block: int) -> StepInputs:
    """The same step, with nothing in it that is computed alone: products of one row take another kernel than products
    of two or more, and end in other last bits.

    A single token gets a second one beside it, at position 0 of the scratch block; where the logits of a single token
    are wanted, they are computed twice. What was wanted still comes first.
    """
    if len(inputs.sampled) == 1:
        inputs = replace(inputs, sampled=np.repeat(inputs.sampled, 2))
    if len(inputs.input_ids) > 1:
        return inputs
    return replace(
        inputs,
        input_ids=np.repeat(inputs.input_ids, 2),
        position_ids=np.append(inputs.position_ids, 0),
        past_lens=np.append(inputs.past_lens, np.int32(0)),
        subsequence_begins=np.arange(3, dtype=np.int32),
        block_indices=np.append(inputs.block_indices, np.int32(scratch_block)),
        block_indices_begins=np.append(inputs.block_indices_begins, np.int32(len(inputs.block_indices) + 1)),
    )


def _table_begins(tables: Sequence[BlockTable]) -> Int32:
    begins = np.zeros(len(tables) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, tables), np.int32, len(tables)), out=begins[1:])
    return begins
