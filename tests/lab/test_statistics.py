import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.lab.statistics import mean_interval, paired_ratio, student_t


@pytest.mark.parametrize(
    ("freedom", "value"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (10, 2.228), (30, 2.042), (120, 1.980)],
)
def test_students_t_is_that_of_the_tables(freedom: int, value: float) -> None:
    """Two-sided 95%, to the digits that are printed everywhere."""
    assert student_t(freedom) == pytest.approx(value, abs=5e-4)


def test_the_interval_covers_the_true_mean_as_often_as_it_says() -> None:
    """Of 2,000 samples of three normal values, 95% within two points."""
    draw = Random(5)
    covered = 0
    for _ in range(2000):
        found = mean_interval([draw.gauss(10, 2) for _ in range(3)])
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 10 <= found.high

    assert 0.93 < covered / 2000 < 0.97


def test_a_difference_that_every_round_shows_is_found_under_a_common_noise() -> None:
    """The machine is twice as slow in one round: pairs do not mind."""
    above, below = [100.0, 50.0, 80.0], [80.0, 41.0, 63.0]

    found = paired_ratio(above, below)
    assert found.finding == "higher"
    assert found.middle == pytest.approx((100 / 80 * 50 / 41 * 80 / 63) ** (1 / 3))
    assert paired_ratio(below, above).finding == "lower"


def test_a_difference_inside_the_noise_is_called_so() -> None:
    """One round says yes, the other no."""
    found = paired_ratio([100.0, 90.0, 105.0], [95.0, 100.0, 99.0])

    assert found.finding == "inside the noise"
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1 < found.high


def test_one_run_knows_nothing_of_the_noise() -> None:
    """There is a ratio and no interval, whatever its size."""
    found = paired_ratio([300.0], [100.0])

    assert found.middle == pytest.approx(3)
    assert found.low is None
    assert found.finding == "not known"
    assert str(found) == "3.00 times (one run: no interval)"
    assert mean_interval([4.0]).low is None


def test_a_simulation_that_repeats_itself_is_exact() -> None:
    """No spread, no interval to speak of."""
    found = paired_ratio([3.0, 3.0], [2.0, 2.0])

    assert found.low == found.high
    assert found.finding == "higher"
    assert math.isclose(found.middle, 1.5)


@pytest.mark.parametrize(("above", "below"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0])])
def test_what_has_no_ratio_is_refused(above: list[float], below: list[float]) -> None:
    """No pairs, unequal numbers, or nothing on one side."""
    with pytest.raises(ValueError, match=r"pairs|positive"):
        paired_ratio(above, below)


amounts = st.lists(st.tuples(st.floats(0.01, 1e4), st.floats(0.01, 1e4)), min_size=1, max_size=6)


@given(amounts)
def test_a_ratio_turned_round_is_its_reciprocal(pairs: list[tuple[float, float]]) -> None:
    """Which of two is called the first changes nothing but the words."""
    above, below = [one for one, _ in pairs], [other for _, other in pairs]
    there, back = paired_ratio(above, below), paired_ratio(below, above)

    assert there.middle * back.middle == pytest.approx(1)
    turned = {"higher": "lower", "lower": "higher"}
    assert back.finding == turned.get(there.finding, there.finding)
    if there.low is not None and back.high is not None and there.low > 0:
        assert there.low * back.high == pytest.approx(1)


@given(amounts, st.floats(0.01, 100))
def test_a_machine_twice_as_slow_changes_no_ratio(pairs: list[tuple[float, float]], factor: float) -> None:
    """What both of a pair have in common cancels out."""
    above, below = [one for one, _ in pairs], [other for _, other in pairs]
    slower = paired_ratio([one * factor for one in above], [other * factor for other in below])

    assert slower.middle == pytest.approx(paired_ratio(above, below).middle)
