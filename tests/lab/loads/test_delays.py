import statistics
from collections.abc import Callable

import pytest

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.delays import Delay, ExponentialDelay, FixedDelay, LogNormalDelay, UniformDelay
from chairlift.lab.loads.draws import Draws


def drawn(delay: Delay) -> list[int]:
    """Ten thousand."""
    draws = Draws(5)
    return [delay.delay(draws.uniform("x", index)) for index in range(10_000)]


def test_delays_have_the_moments_they_should() -> None:
    """Fixed is fixed; uniform stays inside and has its middle; exponential has its mean; lognormal its median."""
    assert set(drawn(FixedDelay(5))) == {5}
    uniform = drawn(UniformDelay(10**6, 3 * 10**6))
    assert 10**6 <= min(uniform) < max(uniform) <= 3 * 10**6
    assert statistics.fmean(uniform) == pytest.approx(2e6, rel=0.02)
    exponential = drawn(ExponentialDelay(10**6))
    assert statistics.fmean(exponential) == pytest.approx(1e6, rel=0.04)
    assert statistics.pstdev(exponential) == pytest.approx(1e6, rel=0.05)
    assert statistics.median(drawn(LogNormalDelay(10**6, 0.5))) == pytest.approx(1e6, rel=0.03)


@pytest.mark.parametrize(
    ("make", "message"),
    [(lambda: UniformDelay(5, 4), "max is 4 ns, below min 5 ns"), (lambda: LogNormalDelay(5, -1), "sigma is -1")],
)
def test_impossible_delays_are_refused(make: Callable[[], Delay], message: str) -> None:
    """The message has the key and the value."""
    with pytest.raises(ConfigError, match=message):
        make()
