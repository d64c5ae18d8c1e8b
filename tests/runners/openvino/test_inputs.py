from array import array
from dataclasses import fields

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.plan import RowKind
from chairlift.runners.openvino.inputs import StepInputs, accompanied, columns_to_inputs, decodes_to_inputs, step_inputs
from tests.runners.openvino.helpers import Row, plan_of


def test_a_mixed_step_becomes_joined_columns() -> None:
    """A decode at position 40 and a chunk of three at position 32, on scattered blocks."""
    inputs = step_inputs(
        plan_of(
            Row([9], 40, [5, 2], kind=RowKind.DECODE),
            Row([7, 8, 6], 32, [0, 3, 4], samples=False),
        )
    )

    assert inputs.input_ids.tolist() == [9, 7, 8, 6]
    assert inputs.position_ids.tolist() == [40, 32, 33, 34]
    assert inputs.past_lens.tolist() == [40, 32]
    assert inputs.subsequence_begins.tolist() == [0, 1, 4]
    assert inputs.block_indices.tolist() == [5, 2, 0, 3, 4]
    assert inputs.block_indices_begins.tolist() == [0, 2, 5]
    assert inputs.max_context_len.tolist() == 41
    assert inputs.sampled.tolist() == [0]


def test_a_padded_prompt_is_sampled_at_its_last_real_token() -> None:
    """Two of five tokens are padding: the third yields the token."""
    inputs = step_inputs(plan_of(Row([1, 2, 3, 0, 0], 0, [0], padding=2), Row([4, 5], 0, [1])))

    assert inputs.sampled.tolist() == [2, 6]
    assert inputs.position_ids.tolist() == [0, 1, 2, 3, 4, 0, 1]


def test_dead_rows_are_computed_to_the_head_and_come_last() -> None:
    """Rows 0 and 2 are dead: logits of rows 1 and 3, then theirs."""
    kinds = (RowKind.DEAD, RowKind.DECODE, RowKind.DEAD, RowKind.DECODE)
    plan = plan_of(*(Row([1], 4, [0], samples=kind is RowKind.DECODE, kind=kind) for kind in kinds))

    assert step_inputs(plan).sampled.tolist() == [1, 3, 0, 2]


def test_a_chunk_that_samples_nothing_computes_no_logits() -> None:
    """The head is not run for the middle of a prompt."""
    assert step_inputs(plan_of(Row([1, 2], 0, [0], samples=False))).sampled.tolist() == []


def test_types_are_those_of_the_graph() -> None:
    """64 bits for ids, positions and the choice of logits, 32 for the rest; no copy of the tables is a view of them."""
    inputs = step_inputs(plan_of(Row([1, 2], 0, [0])))

    wide = {inputs.input_ids.dtype, inputs.position_ids.dtype, inputs.sampled.dtype}
    narrow = {inputs.past_lens.dtype, inputs.subsequence_begins.dtype, inputs.block_indices.dtype}
    assert wide == {np.dtype(np.int64)}
    assert narrow | {inputs.block_indices_begins.dtype, inputs.max_context_len.dtype} == {np.dtype(np.int32)}


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 40), st.integers(0, 39)), min_size=1, max_size=12))
def test_columns_agree_with_a_loop_over_rows(drawn: list[tuple[int, int, int]]) -> None:
    """For any starts, counts and paddings, the arrays equal those made row by row."""
    starts = [start for start, _, _ in drawn]
    counts = [count for _, count, _ in drawn]
    paddings = [min(padding, count - 1) for _, count, padding in drawn]
    tables = [array("i", range(i, i + (start + count + 31) // 32)) for i, (start, count, _) in enumerate(drawn)]
    rows = np.arange(len(drawn))

    inputs = columns_to_inputs(range(sum(counts)), starts, counts, paddings, tables, rows)

    positions = [start + i for start, count in zip(starts, counts, strict=True) for i in range(count)]
    assert inputs.position_ids.tolist() == positions
    assert inputs.block_indices.tolist() == [block for table in tables for block in table]
    for row in range(len(drawn)):
        begin, end = inputs.subsequence_begins[row : row + 2]
        assert end - begin == counts[row]
        assert inputs.sampled[row] == end - 1 - paddings[row]
        first, last = inputs.block_indices_begins[row : row + 2]
        assert inputs.block_indices[first:last].tolist() == tables[row].tolist()
    assert inputs.max_context_len == max(start + count for start, count in zip(starts, counts, strict=True))


@given(st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 300), st.integers(0, 3)), min_size=1, max_size=40))
def test_decodes_alone_have_the_same_arrays_as_any_rows(drawn: list[tuple[int, int, int]]) -> None:
    """The short way for steps of decodes gives what the general one gives, in types and values."""
    tokens, starts, _ = zip(*drawn, strict=True)
    tables = [array("i", range(i, i + start // 32 + 1 + spare)) for i, (_, start, spare) in enumerate(drawn)]
    ones, zeros, rows = [1] * len(drawn), [0] * len(drawn), np.arange(len(drawn))

    short = decodes_to_inputs(tokens, starts, tables)

    general = columns_to_inputs(tokens, starts, ones, zeros, tables, rows)
    for field in fields(StepInputs):
        mine, other = getattr(short, field.name), getattr(general, field.name)
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        assert np.array_equal(mine, other)


def test_a_single_token_gets_company_on_the_scratch_block() -> None:
    """A decode of one row becomes a step of two: the second at position 0 of the scratch block, its logits twice."""
    inputs = accompanied(step_inputs(plan_of(Row([9], 40, [5, 2], kind=RowKind.DECODE))), scratch_block=77)

    assert inputs.input_ids.tolist() == [9, 9]
    assert inputs.position_ids.tolist() == [40, 0]
    assert inputs.past_lens.tolist() == [40, 0]
    assert inputs.subsequence_begins.tolist() == [0, 1, 2]
    assert inputs.block_indices.tolist() == [5, 2, 77]
    assert inputs.block_indices_begins.tolist() == [0, 2, 3]
    assert inputs.max_context_len.tolist() == 41
    assert inputs.sampled.tolist() == [0, 0]


def test_a_prompt_alone_has_its_logits_computed_twice() -> None:
    """Its tokens keep each other company; the one row of logits does not have any."""
    inputs = accompanied(step_inputs(plan_of(Row([1, 2, 3], 0, [0]))), scratch_block=77)

    assert inputs.input_ids.tolist() == [1, 2, 3]
    assert inputs.block_indices.tolist() == [0]
    assert inputs.sampled.tolist() == [2, 2]


def test_company_has_the_types_of_the_graph() -> None:
    """Every array keeps its type."""
    plain = step_inputs(plan_of(Row([9], 40, [5, 2], kind=RowKind.DECODE)))
    both = accompanied(plain, scratch_block=77)

    assert all(getattr(both, one.name).dtype == getattr(plain, one.name).dtype for one in fields(StepInputs))
