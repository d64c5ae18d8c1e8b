import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.advisor.memory.lengths import Lengths, sample
from chairlift.core.errors import ConfigError

ROWS = st.lists(st.tuples(st.integers(1, 2000), st.integers(1, 500), st.integers(0, 500)), min_size=1, max_size=20)


def test_equal_requests_hold_their_prompt_and_half_their_answer() -> None:
    """100 prompt tokens and 60 of output: 130 at a random moment, and a uniform spread of 60 / sqrt(12)."""
    lengths = Lengths.fixed(100, 60)

    assert lengths.held == 130
    assert lengths.deviation == pytest.approx(60 / 12**0.5)
    assert (lengths.longest, lengths.context, lengths.reserved) == (160, 130, 160)


def test_long_answers_are_seen_more_often_than_they_come() -> None:
    """Answers of 10 and 90 tokens to prompts of 100: nine tenths of the running ones are long, so 0.1 x 105 + 0.9 x
    145.
    """
    lengths = Lengths.of([(100, 10, 10), (100, 90, 90)])

    assert lengths.held == pytest.approx(0.1 * 105 + 0.9 * 145)
    assert lengths.output == 50


@given(ROWS)
def test_it_is_the_mean_over_all_tokens_of_all_answers(rows: list[tuple[int, int, int]]) -> None:
    """Counted one step after the other, half a token apart from the formula's even growth."""
    lengths = Lengths.of([(prompt, output, output + more) for prompt, output, more in rows])
    counted = [prompt + step + 0.5 for prompt, output, _ in rows for step in range(output)]

    assert lengths.held == pytest.approx(sum(counted) / len(counted))
    assert lengths.reserved >= lengths.held


def test_full_and_naive_reservations_hold_more() -> None:
    """Blocks of 16: the mean with half of the last one empty, prompt + max_tokens, and max_model_len."""
    lengths = Lengths.of([(100, 60, 220)])

    assert lengths.blocks(16, "prompt", 2048) == pytest.approx(130 / 16 + 0.5 * 15 / 16)
    assert lengths.blocks(16, "full", 2048) == pytest.approx(320 / 16 + 0.5 * 15 / 16)
    assert lengths.blocks(16, "model_len", 2048) == 128


@given(ROWS, st.integers(10, 100_000), st.sampled_from([1, 16, 32]))
def test_what_fits_nearly_always_fits_on_average(rows: list[tuple[int, int, int]], blocks: int, size: int) -> None:
    """And the sum of means and deviations of the one stays within the pool."""
    lengths = Lengths.of([(prompt, output, output + more) for prompt, output, more in rows])
    found = lengths.fitting(blocks, size, "prompt", 4096)
    mean = lengths.blocks(size, "prompt", 4096)

    assert 0 <= found.nearly_always <= found.on_average
    assert found.on_average * mean <= blocks
    n = found.nearly_always
    assert n * mean + 2.326 * (n * (lengths.deviation / size) ** 2) ** 0.5 <= blocks * (1 + 1e-9)


def test_ninety_nine_per_cent_is_what_a_draw_of_sequences_shows() -> None:
    """A thousand pools of so many random sequences: between 0.5% and 2.5% of them need more blocks than there are."""
    rng = random.Random(1)
    rows = [(int(rng.lognormvariate(5, 0.6)) + 1, int(rng.expovariate(1 / 120)) + 1, 1000) for _ in range(2000)]
    lengths, size, blocks = Lengths.of(rows), 16, 3000
    n = lengths.fitting(blocks, size, "prompt", 4096).nearly_always
    weights = [output for _, output, _ in rows]

    over = 0
    for _ in range(1000):
        running = rng.choices(rows, weights, k=n)
        over += sum(-(-(p + int(rng.random() * o) + 1) // size) for p, o, _ in running) > blocks

    assert 5 <= over <= 25


def test_a_load_without_answers_has_no_lengths() -> None:
    """Nothing runs, so nothing is held."""
    with pytest.raises(ConfigError, match="no request with an answer"):
        Lengths.of([])
    with pytest.raises(ConfigError, match="--output 0"):
        Lengths.fixed(10, 0)


def test_a_long_list_is_thinned_evenly() -> None:
    """Every third of thirty where ten are wanted."""
    rows = [(index, 1, 1) for index in range(30)]

    assert [row[0] for row in sample(rows, 10)] == list(range(0, 30, 3))
