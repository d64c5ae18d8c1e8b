import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.lab.loads.statistics import Distribution, cv_of_gaps, dispersion, peak_overlap, rate

SECOND = 10**9
VALUES = st.lists(st.integers(1, 10**6), min_size=1, max_size=50)


def test_a_distribution_of_known_values() -> None:
    """1 to 100: mean 50.5, variance (100² - 1) / 12, and each percentile a value that occurred."""
    values = Distribution.of(range(1, 101))

    assert (values.min, values.p50, values.p90, values.p99, values.max, values.total) == (1, 50, 90, 99, 100, 5050)
    assert values.mean == 50.5
    assert values.variance == pytest.approx(833.25)
    assert values.cv2 == pytest.approx(833.25 / 50.5**2)


@given(VALUES, st.sampled_from([0.5, 0.9, 0.99]))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(values: list[int], share: float) -> None:
    """By that definition, counted out."""
    percentile = getattr(Distribution.of(values), f"p{round(share * 100)}")

    enough = [value for value in values if sum(other <= value for other in values) >= share * len(values)]
    assert percentile == min(enough)


@given(VALUES)
def test_equal_values_have_no_variance(values: list[int]) -> None:
    """And only they."""
    distribution = Distribution.of(values)

    assert (distribution.variance == 0) is (len(set(values)) == 1)


def test_rates_count_gaps() -> None:
    """Three starts over two seconds are two gaps: one a second."""
    assert rate([0, SECOND, 2 * SECOND]) == 1
    assert rate([5, 5]) is None
    assert rate([]) is None


def test_the_cv_of_gaps_of_known_times() -> None:
    """Equal gaps: 0. Gaps of 1 and 3: deviation 1 over mean 2."""
    assert cv_of_gaps([0, 10, 20, 30]) == 0
    assert cv_of_gaps([0, 1, 4]) == pytest.approx(0.5)
    assert cv_of_gaps([0, 5]) is None
    assert cv_of_gaps([7, 7, 7]) is None


def test_the_dispersion_of_known_counts() -> None:
    """Equal counts: 0. Counts of 1 and 3 in turn: variance 1 over mean 2. Below ten whole windows: unknown."""
    even = [number * SECOND for number in range(11)]
    uneven = sorted([n * SECOND for n in range(20)] + [n * SECOND + k for n in range(1, 20, 2) for k in (1, 2)])

    assert dispersion(even, SECOND) == 0
    assert dispersion([*uneven, 20 * SECOND], SECOND) == pytest.approx(0.5)
    assert dispersion(even, 2 * SECOND) is None
    assert dispersion([], SECOND) is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=30))
def test_the_peak_is_the_most_intervals_open_at_any_instant(intervals: list[tuple[int, int]]) -> None:
    """Counted out at every instant; an end makes room for a start at the same one, and 0 lasts an instant."""
    times, durations = [time for time, _ in intervals], [duration for _, duration in intervals]

    peak = max(sum(time <= now < time + max(1, lasting) for time, lasting in intervals) for now in range(75))

    assert peak_overlap(times, durations) == peak


def test_nothing_overlaps_in_an_empty_load() -> None:
    """Zero."""
    assert peak_overlap([], []) == 0
