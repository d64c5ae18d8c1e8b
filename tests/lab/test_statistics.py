import math
from random import Random

import pytest

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

    assert found.exact
    assert found.finding == "higher"
    assert math.isclose(found.middle, 1.5)


@pytest.mark.parametrize(("above", "below"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0])])
def test_what_has_no_ratio_is_refused(above: list[float], below: list[float]) -> None:
    """No pairs, unequal numbers, or nothing on one side."""
    with pytest.raises(ValueError, match=r"pairs|positive"):
        paired_ratio(above, below)
