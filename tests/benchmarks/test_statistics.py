import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._statistics import median_interval, ratios


def test_seven_values_give_their_whole_range() -> None:
    """With seven pairs the sign test's interval is from the smallest to the largest, at 1 - 2 / 2^7."""
    interval = median_interval([3.0, 1.0, 2.0, 7.0, 5.0, 4.0, 6.0])

    assert (interval.low, interval.median, interval.high) == (1.0, 4.0, 7.0)
    assert interval.confidence == pytest.approx(1 - 2 / 128)


def test_nine_values_leave_out_the_extremes() -> None:
    """With nine the second and the eighth bound it, at 1 - 2 (1 + 9) / 2^9."""
    interval = median_interval([float(value) for value in range(9)])

    assert (interval.low, interval.median, interval.high) == (1.0, 4.0, 7.0)
    assert interval.confidence == pytest.approx(1 - 20 / 512)


def test_few_values_say_how_little_they_tell() -> None:
    """Three values cannot reach 95%: all of their range, at 75%."""
    interval = median_interval([1.0, 9.0, 2.0])

    assert (interval.low, interval.high, interval.confidence) == (1.0, 9.0, 0.75)


def test_no_value_has_no_median() -> None:
    """An empty comparison is an error, not a zero."""
    with pytest.raises(ValueError, match="at least one"):
        median_interval([])


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=40), st.floats(0.5, 0.99))
def test_the_interval_holds_its_median(values: list[float], confidence: float) -> None:
    """Low <= median <= high, all within the values' range."""
    interval = median_interval(values, confidence)

    assert min(values) <= interval.low <= interval.median <= interval.high <= max(values)


def test_the_interval_covers_as_often_as_it_says() -> None:
    """Of 2,000 samples of eleven from a skewed distribution with median 1, the stated share covers 1, within 2%."""
    draw = random.Random(5)
    intervals = [median_interval([draw.lognormvariate(0, 1) for _ in range(11)]) for _ in range(2000)]

    covered = sum(interval.low <= 1 <= interval.high for interval in intervals) / len(intervals)

    assert covered == pytest.approx(intervals[0].confidence, abs=0.02)


def test_ratios_are_of_pairs() -> None:
    """Run by run; a missing run is an error."""
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])
