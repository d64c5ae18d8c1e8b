from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.advisor.choose.tail import SHARE, output_cv, stretch
from tests.advisor.evaluate.making import rounds

MIXED = rounds(
    "arrivals=poisson arrivals.rate=8 prompt=50 output=exponential output.mean=40 output.cap=200 count=64"
).first
EVEN = rounds("arrivals=poisson arrivals.rate=8 prompt=50 output=20 count=64").first


def test_zero_makes_all_answers_alike() -> None:
    """As long as their mean; one changes nothing."""
    mean = fmean(one.output_tokens for one in MIXED.schedule)

    assert {one.output_tokens for one in stretch(MIXED, 0, 10**6).schedule} == {round(mean)}
    assert list(stretch(MIXED, 1, 10**6).schedule) == list(MIXED.schedule)


def test_above_one_the_longest_eighth_gets_longer() -> None:
    """Also where all are alike; nobody else changes, and bounds move with the answers."""
    longer = stretch(EVEN, 3, 10**6)
    lengths = [one.output_tokens for one in longer.schedule]

    assert sorted(lengths) == [20] * 56 + [60] * 8
    assert all(one.max_tokens == one.output_tokens for one in longer.schedule)
    chosen = [one.index for one in longer.schedule if one.output_tokens == 60]
    assert max(chosen) - min(chosen) > 64 // 2


@given(st.floats(1, 64), st.floats(1, 64))
def test_a_longer_tail_has_a_larger_spread(one: float, other: float) -> None:
    """Up to an eighth at any length the standard deviation over the mean grows with it."""
    low, high = sorted((one, other))

    assert output_cv(stretch(EVEN, low, 10**6)) <= output_cv(stretch(EVEN, high, 10**6)) + 1e-9


@given(st.floats(0, 64))
def test_nothing_grows_beyond_the_context(factor: float) -> None:
    """Prompt and answer together."""
    stretched = stretch(MIXED, factor, 300)

    assert all(one.prompt_tokens + one.output_tokens <= 300 for one in stretched.schedule)
    assert len(stretched.schedule) == len(MIXED.schedule)
    assert len(MIXED.schedule) // SHARE == 8


def test_even_lengths_have_no_spread() -> None:
    """Standard deviation over mean."""
    assert output_cv(EVEN) == 0
    assert output_cv(MIXED) == pytest.approx(1, abs=0.3)
