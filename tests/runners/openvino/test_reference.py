"""The tiny models against transformers, and every way of computing a prompt against every other."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from chairlift.core.plan import RowKind
from tests.runners.openvino.helpers import (
    MODELS,
    TOLERANCE,
    Bench,
    Row,
    model_names,
    one_by_one,
    open_bench,
    prompt,
    reference,
)

HALF_PRECISION_TOLERANCE = 0.02
"""What keys and values in f16 may change in logits of up to 6."""


def at_positions(bench: Bench) -> NDArray[np.float32]:
    """Logits where the reference has them, from prompts that end there, in one step; each on blocks of its own."""
    tokens = prompt()
    rows: list[Row] = []
    for position in reference()["positions"].tolist():
        table = [(5 * (len(rows) + index * 6)) % 16 for index in range(position // 32 + 1)]
        rows.append(Row(tokens[: position + 1], 0, table))
    return np.concatenate([bench.step(row) for row in rows])


@pytest.mark.parametrize("name", model_names())
def test_logits_equal_those_of_transformers(name: str) -> None:
    """Every family, head size, rope scaling, storage format and encoding: up to f32 rounding when the cache is f32."""
    logits = at_positions(open_bench(name))

    assert np.abs(logits - reference()[name]).max() < TOLERANCE


@pytest.mark.parametrize("name", ["llama-gqa.Q4_1.gguf", "qwen2"])
def test_a_cache_in_half_precision_stays_close(name: str) -> None:
    """Keys and values in f16, the default."""
    logits = at_positions(open_bench(name, kv_cache_dtype="f16"))

    assert 0 < np.abs(logits - reference()[name]).max() < HALF_PRECISION_TOLERANCE


@pytest.fixture(scope="module", params=["f32", "f16"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """One model, quantised, with grouped queries, under both types of cache."""
    made = open_bench("llama-gqa.Q4_1.gguf", num_kv_blocks=24, kv_cache_dtype=request.param)
    yield made
    made.runner.close()


@dataclass(frozen=True)
class Whole:
    """Logits at every position of the prompt, [70, vocabulary]."""

    logits: NDArray[np.float32]
    tolerance: float

    def agrees(self, logits: NDArray[np.float32], position: int) -> bool:
        """Whether a row's logits are those at a position."""
        return bool(np.abs(logits - self.logits[position]).max() < self.tolerance)


@pytest.fixture(scope="module")
def whole(bench: Bench) -> Whole:
    """Computed by single-token steps, one position after the other.

    Arithmetic in another order differs in the last bits of f32; a cache in f16 rounds some of those to its next number.
    """
    tolerance = 5 * TOLERANCE if bench.kv_cache_dtype == "f32" else 2e-3
    return Whole(np.array(list(one_by_one(bench, prompt(), [0, 1, 2]))), tolerance)


@pytest.mark.parametrize("size", [1, 7, 31, 32, 33, 64, 70])
def test_chunks_of_any_size_give_the_same_logits(bench: Bench, whole: Whole, size: int) -> None:
    """A prompt in pieces: its last logits equal those of position after position."""
    tokens, table = prompt(), [9, 3, 6]

    last = (len(tokens) - 1) // size * size
    for start in range(0, last, size):
        bench.step(Row(tokens[start : start + size], start, table, samples=False))
    logits = bench.step(Row(tokens[last:], last, table))

    assert whole.agrees(logits[0], -1)


def test_a_chunk_that_samples_nothing_calls_no_sampler(bench: Bench) -> None:
    """The middle of a prompt yields no token and no logits."""
    assert bench.step(Row(prompt()[:40], 0, [4, 5], samples=False)).size == 0


def test_sequences_may_share_the_blocks_of_a_prefix(bench: Bench, whole: Whole) -> None:
    """Two sequences read the first block of a third and go on in blocks of their own, in one step."""
    tokens = prompt()
    bench.step(Row(tokens[:32], 0, [11], samples=False))

    logits = bench.step(
        Row(tokens[32:50], 32, [11, 12]),
        Row(tokens[32:70], 32, [11, 13, 14]),
    )

    assert whole.agrees(logits[0], 49)
    assert whole.agrees(logits[1], 69)


def test_mixed_steps_give_every_row_its_own_logits(bench: Bench, whole: Whole) -> None:
    """Decodes at different positions, a whole prompt and a chunk, all in one step."""
    tokens = prompt()
    bench.step(Row(tokens[:9], 0, [0], samples=False), Row(tokens[:64], 0, [1, 2], samples=False))
    bench.step(Row(tokens[:20], 0, [3], samples=False))

    logits = bench.step(
        Row([tokens[9]], 9, [0], kind=RowKind.DECODE),
        Row([tokens[64]], 64, [1, 2, 7], kind=RowKind.DECODE),
        Row(tokens[:5], 0, [8]),
        Row(tokens[20:45], 20, [3, 10]),
    )

    for row, position in enumerate((9, 64, 4, 44)):
        assert whole.agrees(logits[row], position)


def test_padding_is_written_and_overwritten(bench: Bench, whole: Whole) -> None:
    """A prompt padded from 5 to 40 tokens yields its own token, and the answer runs over the padding."""
    tokens = prompt()

    first = bench.step(Row([*tokens[:5], *[0] * 35], 0, [15, 16], padding=35))
    assert whole.agrees(first[0], 4)

    for position in range(5, 40):
        logits = bench.step(Row([tokens[position]], position, [15, 16], kind=RowKind.DECODE))
        assert whole.agrees(logits[0], position)


def test_a_padded_row_equals_the_row_alone(bench: Bench, whole: Whole) -> None:
    """Right-hand padding changes nothing before it."""
    tokens = prompt()[:10]

    alone = bench.step(Row(tokens, 0, [17]))
    padded = bench.step(Row([*tokens, *[0] * 20], 0, [18], padding=20))

    assert whole.agrees(alone[0], 9)
    assert whole.agrees(padded[0], 9)


def test_dead_rows_are_dropped_from_the_result(bench: Bench, whole: Whole) -> None:
    """Two dead rows around a decode recompute their last position; only the decode's token is sampled."""
    tokens = prompt()
    bench.step(Row(tokens[:9], 0, [0], samples=False), Row(tokens[:9], 0, [1], samples=False))

    dead = RowKind.DEAD
    logits = bench.step(
        Row([tokens[8]], 8, [0], samples=False, kind=dead, name="gone"),
        Row([tokens[9]], 9, [1], kind=RowKind.DECODE, name="here"),
        Row([0], 3, [bench.runner.capacity().scratch_block], samples=False, kind=dead, name="cancelled"),
    )

    assert bench.seen.request_ids == ["here"]
    assert whole.agrees(logits[0], 9)


def test_a_step_may_be_repeated(bench: Bench) -> None:
    """The same plan twice gives the same logits to the bit: nothing but its own positions was written."""
    rows = [Row(prompt()[:40], 0, [20, 21]), Row(prompt()[:7], 0, [22])]

    first = bench.step(*rows)

    assert np.array_equal(bench.step(*rows), first)


def test_a_table_may_be_longer_than_its_row_needs(bench: Bench, whole: Whole) -> None:
    """A reservation holds blocks that are not written yet; rows behind it are not disturbed."""
    tokens = prompt()

    logits = bench.step(Row(tokens[:8], 0, [5, 6, 7, 9]), Row(tokens[:34], 0, [10, 11, 12]))

    assert whole.agrees(logits[0], 7)
    assert whole.agrees(logits[1], 33)


@given(data=st.data())
def test_any_cut_of_prompts_on_scattered_blocks_gives_the_same_logits(
    bench: Bench, whole: Whole, data: st.DataObject
) -> None:
    """Up to four prompts, cut anywhere, on any blocks, in mixed steps: each piece ends in the right logits."""
    tokens = prompt()
    lengths = data.draw(st.lists(st.integers(1, len(tokens)), min_size=1, max_size=4), label="lengths")
    blocks = data.draw(st.permutations(range(24)), label="blocks")
    tables = [blocks[index * 3 : index * 3 + 3] for index in range(len(lengths))]
    done = [0] * len(lengths)
    while any(position < length for position, length in zip(done, lengths, strict=True)):
        rows: list[tuple[int, Row]] = []
        for index, length in enumerate(lengths):
            count = data.draw(st.integers(0 if rows else 1, 24), label="count") if done[index] < length else 0
            if count := min(count, length - done[index]):
                piece = tokens[done[index] : done[index] + count]
                kind = RowKind.DECODE if count == 1 else RowKind.PREFILL
                rows.append((index, Row(piece, done[index], tables[index], kind=kind)))
                done[index] += count
        if rows:
            rows.sort(key=lambda item: item[1].kind)
            logits = bench.step(*(row for _, row in rows))
            for row, (index, _) in enumerate(rows):
                assert whole.agrees(logits[row], done[index] - 1)


def test_the_prompt_crosses_two_blocks() -> None:
    """The fixtures are long enough for what they test."""
    assert len(prompt()) > 64
    assert (MODELS / "reference.npz").stat().st_size < 100_000
