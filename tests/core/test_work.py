from array import array
from dataclasses import replace

import pytest

from chairlift.core.errors import ContractError
from chairlift.core.plan import RowKind, StepPlan, TokenCounts
from chairlift.core.work import ModelShape, work_of

SHAPE = ModelShape(
    num_layers=2,
    hidden_size=8,
    num_heads=4,
    num_kv_heads=2,
    head_dim=2,
    intermediate_size=16,
    vocab_size=100,
    layer_weight_bytes=5000,
    head_weight_bytes=1600,
    kv_element_bytes=2,
)


def _plan(*rows: tuple[RowKind, int, int, bool]) -> StepPlan:
    """Rows as (kind, start, count, samples), one-token rows first."""
    kinds, starts, counts, samples = zip(*rows, strict=True) if rows else ((), (), (), ())
    return StepPlan(
        step=0,
        now=0,
        policy="continuous",
        request_ids=tuple(f"r{i}" for i in range(len(rows))),
        kinds=kinds,
        starts=starts,
        counts=counts,
        paddings=(0,) * len(rows),
        samples=samples,
        tokens=(1,) * sum(counts),
        tables=tuple(array("i", range(8)) for _ in rows),
        single_token_rows=sum(kind in (RowKind.DECODE, RowKind.DEAD) for kind in kinds),
        token_counts=TokenCounts(),
    )


def test_the_shapes_costs_are_those_of_its_matrices() -> None:
    """Two operations a multiply-add: q, k, v, o and three feed-forward matrices; two products a pair and head."""
    # A layer: q and o 8x8 each, k and v 8x4 each, three of 8x16.
    assert SHAPE.linear_flops_per_token == 2 * 2 * (64 + 64 + 32 + 32 + 3 * 128)
    assert SHAPE.head_flops_per_sample == 2 * 8 * 100
    assert SHAPE.attention_flops_per_pair == 2 * 2 * 2 * 4 * 2
    assert SHAPE.kv_bytes_per_token == 2 * 2 * 2 * 2 * 2


def test_a_decode_reads_its_context_and_writes_one_position() -> None:
    """One row at position 9: ten positions read, one written, all weights read once."""
    work = work_of(_plan((RowKind.DECODE, 9, 1, True)), SHAPE)

    assert work.decode_flops == SHAPE.linear_flops_per_token + SHAPE.head_flops_per_sample + 10 * 64
    assert work.decode_kv_bytes == 11 * SHAPE.kv_bytes_per_token
    assert work.weight_bytes == 5000 + 1600
    assert (work.prefill_flops, work.prefill_kv_bytes) == (0, 0)


def test_a_chunk_attends_to_what_precedes_each_of_its_tokens() -> None:
    """Tokens at positions 4, 5 and 6 look at 5, 6 and 7 positions; without a sample the head is not computed."""
    work = work_of(_plan((RowKind.PREFILL, 4, 3, False)), SHAPE)

    assert work.prefill_flops == 3 * SHAPE.linear_flops_per_token + (5 + 6 + 7) * 64
    assert work.prefill_kv_bytes == (7 + 3) * SHAPE.kv_bytes_per_token
    assert work.weight_bytes == 5000


def test_weights_are_read_once_a_step_whatever_the_batch() -> None:
    """Why decode is bound by bandwidth: eight rows move the weights of one."""
    one = work_of(_plan((RowKind.DECODE, 9, 1, True)), SHAPE)
    eight = work_of(_plan(*[(RowKind.DECODE, 9, 1, True)] * 8), SHAPE)

    assert eight.weight_bytes == one.weight_bytes
    assert eight.flops == 8 * one.flops
    assert eight.bytes - eight.weight_bytes == 8 * (one.bytes - one.weight_bytes)


def test_a_dead_row_costs_what_a_live_one_does() -> None:
    """Padding and dead rows are real work, logits included."""
    dead = work_of(_plan((RowKind.DEAD, 9, 1, False)), SHAPE)
    assert dead == work_of(_plan((RowKind.DECODE, 9, 1, True)), SHAPE)


def test_the_step_is_the_sum_of_its_rows() -> None:
    """Decodes and prompts are told apart and add up."""
    decode, prompt = (RowKind.DECODE, 5, 1, True), (RowKind.PREFILL, 0, 6, True)
    both, first, second = (work_of(plan, SHAPE) for plan in (_plan(decode, prompt), _plan(decode), _plan(prompt)))

    assert both == replace(first, prefill_flops=second.prefill_flops, prefill_kv_bytes=second.prefill_kv_bytes)
    assert both.flops == first.flops + second.flops


def test_repeats_add_up() -> None:
    """Of five steps each live row reads one position more than in the step before; a dead row stays where it is."""
    rows = ((RowKind.DECODE, 10, 1, True), (RowKind.DEAD, 7, 1, False), (RowKind.DECODE, 30, 1, True))
    plan = replace(_plan(*rows), token_counts=TokenCounts(decode=2, dead=1))

    single = [
        work_of(replace(plan, starts=(10 + k, 7, 30 + k)), SHAPE)  # as it is planned k steps later
        for k in range(5)
    ]

    for name in ("decode_flops", "prefill_flops", "weight_bytes", "decode_kv_bytes", "prefill_kv_bytes"):
        assert getattr(work_of(plan, SHAPE, 5), name) == sum(getattr(one, name) for one in single)
    with pytest.raises(ContractError, match="has prompt rows and cannot be repeated 2 times"):
        work_of(_plan((RowKind.PREFILL, 0, 4, True)), SHAPE, 2)
