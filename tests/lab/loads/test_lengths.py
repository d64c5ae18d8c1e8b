import statistics
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.draws import Draws
from chairlift.lab.loads.lengths import (
    LONGEST,
    BimodalLength,
    CappedExponentialLength,
    FixedLength,
    Lengths,
    LogNormalLength,
    UniformLength,
)

UNIT = st.floats(0, 1, exclude_max=True)


def drawn(lengths: Lengths, count: int = 20_000) -> list[int]:
    """As a schedule draws them."""
    draws = Draws(5)
    return [lengths.length(draws.uniform("x", index), index) for index in range(count)]


@given(UNIT, st.integers(0, 10**6), st.integers(1, 500), st.integers(0, 500))
def test_no_length_leaves_its_range(uniform: float, index: int, least: int, more: int) -> None:
    """Whatever is drawn, lengths are whole, and between the least and the most allowed."""
    most = least + more
    kinds: list[Lengths] = [
        FixedLength(least),
        UniformLength(least, most),
        LogNormalLength(median=100, sigma=2, min=least, max=most),
        LogNormalLength(median=100, sigma=10_000, min=least, max=most),
        LogNormalLength(mean=100, cv=3, min=least, max=most),
        BimodalLength(least, most, "3:2"),
        BimodalLength(least, most, "3:2", order="cycle"),
        CappedExponentialLength(100, most, least),
    ]

    for lengths in kinds:
        length = lengths.length(uniform, index)
        assert type(length) is int
        assert least <= length <= most


def test_a_fixed_length_is_that_length() -> None:
    """Always the same."""
    assert set(drawn(FixedLength(17))) == {17}


def test_a_uniform_length_takes_every_value_equally_often() -> None:
    """Both ends are included, and no value is favoured."""
    lengths = drawn(UniformLength(3, 7))

    assert set(lengths) == {3, 4, 5, 6, 7}
    assert all(lengths.count(length) / 20_000 == pytest.approx(0.2, abs=0.02) for length in range(3, 8))


def test_a_lognormal_has_the_median_and_sigma_or_the_mean_and_cv_asked_for() -> None:
    """Within the noise of 20,000 draws."""
    by_median = drawn(LogNormalLength(median=500, sigma=0.8))
    by_mean = drawn(LogNormalLength(mean=500, cv=0.5))

    assert statistics.median(by_median) == pytest.approx(500, rel=0.03)
    assert sorted(by_median)[int(20_000 * 0.8413)] == pytest.approx(500 * 2.71828**0.8, rel=0.05)  # one sigma up
    assert statistics.fmean(by_mean) == pytest.approx(500, rel=0.02)
    assert statistics.pstdev(by_mean) / statistics.fmean(by_mean) == pytest.approx(0.5, rel=0.04)


def test_a_bimodal_draws_its_ratio_or_cycles_through_it_exactly() -> None:
    """7:1 at random is one in eight long; in a cycle it is the last of every eight."""
    assert drawn(BimodalLength(20, 600)).count(600) / 20_000 == pytest.approx(1 / 8, abs=0.01)
    assert drawn(BimodalLength(20, 600, order="cycle"), 16) == ([20] * 7 + [600]) * 2
    assert set(drawn(BimodalLength(20, 600, "0:1"), 50)) == {600}


def test_a_capped_exponential_has_its_mean_before_the_cap_and_never_passes_it() -> None:
    """With a far cap the mean is that asked for (and half a token, by rounding up); a near cap is reached often."""
    assert statistics.fmean(drawn(CappedExponentialLength(128, 100_000))) == pytest.approx(128.5, rel=0.03)
    near = drawn(CappedExponentialLength(128, 32))
    assert max(near) == 32
    assert near.count(32) / 20_000 == pytest.approx(2.71828 ** (-31 / 128), abs=0.02)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedLength(0), "tokens is 0; lengths are at least 1 token"),
        (lambda: FixedLength(10**24), "lengths are at most 1,000,000,000 tokens"),
        (lambda: UniformLength(5, 10**24), "max is 1000000000000000000000000; lengths are at most"),
        (lambda: UniformLength(5, 4), "max is 4, below min 5"),
        (lambda: LogNormalLength(median=5), "takes median and sigma, or mean and cv, and no more; given: median"),
        (LogNormalLength, "given: neither"),
        (lambda: LogNormalLength(median=5, sigma=1, cv=2), "given: median and sigma and cv"),
        (lambda: LogNormalLength(median=0, sigma=1), "median is 0; it must be positive"),
        (lambda: LogNormalLength(mean=5, cv=-1), "cv is -1; it must not be negative"),
        (lambda: LogNormalLength(mean=5, cv=1, min=9, max=8), "max is 8, below min 9"),
        (lambda: BimodalLength(0, 5), "short is 0"),
        (lambda: BimodalLength(5, 0), "long is 0"),
        (lambda: BimodalLength(5, 6, "7"), "ratio is '7'; it is two whole numbers with a colon between"),
        (lambda: BimodalLength(5, 6, "0:0"), "ratio is '0:0'"),
        (lambda: CappedExponentialLength(0, 5), "mean is 0; it is above 0"),
        (lambda: CappedExponentialLength(5, 5, min=6), "cap is 5, below min 6"),
    ],
)
def test_impossible_lengths_are_refused(make: Callable[[], Lengths], message: str) -> None:
    """The message has the key, the value and what would do."""
    with pytest.raises(ConfigError, match=message):
        make()


def test_no_draw_is_longer_than_anything_that_can_be_sent() -> None:
    """A sigma without sense gives long prompts, not numbers that nothing can hold."""
    assert LogNormalLength(median=100, sigma=1000).length(0.99, 0) == LONGEST
