from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.lab.report.scale import log_ticks, number, seconds, share, ticks


@given(st.floats(0, 1e6), st.floats(1e-3, 1e6), st.integers(2, 15))
def test_ticks_are_round_even_and_few(start: float, length: float, most: int) -> None:
    """Within the range, one step apart, and no more than asked for (but one, which lies on the edge)."""
    found = ticks(start, start + length, most)

    assert len(found) <= most + 1
    assert all(start - 1e-6 * length <= one <= start + length * (1 + 1e-6) + 1e-9 for one in found)
    gaps = [after - before for before, after in pairwise(found)]
    assert all(gap == pytest.approx(gaps[0], rel=1e-3) for gap in gaps)


@given(st.floats(1e-6, 1e3), st.floats(1.01, 1e6), st.integers(3, 12))
def test_logarithmic_ticks_are_few_and_ascending(start: float, times: float, most: int) -> None:
    """Within the range, whatever it is."""
    found = log_ticks(start, start * times, most)

    assert len(found) <= most
    assert found == sorted(found)
    assert all(start <= one <= start * times for one in found)


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "\N{EN DASH}"), (0, "0"), (0.012345, "0.0123"), (1.5, "1.50"), (107.4, "107"), (12_345.6, "12,300")],
)
def test_numbers_have_three_digits_that_count(value: float | None, words: str) -> None:
    """And thousands apart."""
    assert number(value) == words


@pytest.mark.parametrize(
    ("nanoseconds", "words"), [(0, "0 s"), (1_500, "1.50 µs"), (20_300_000, "20.3 ms"), (6_990_000_000, "6.99 s")]
)
def test_times_have_the_unit_that_fits(nanoseconds: float, words: str) -> None:
    """From microseconds to seconds."""
    assert seconds(nanoseconds) == words


def test_shares_are_percentages() -> None:
    """Small ones with a digit behind the point."""
    assert (share(0.394), share(0.0312), share(0), share(None)) == ("39%", "3.1%", "0%", "\N{EN DASH}")
