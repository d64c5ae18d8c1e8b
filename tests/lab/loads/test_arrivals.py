import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.arrivals import Arrivals, Burst, ClosedLoop, Constant, Gamma, OnOff, OpenProcess, Poisson, Ramp
from chairlift.lab.loads.draws import Draws
from chairlift.lab.loads.statistics import cv_of_gaps, dispersion, rate
from chairlift.lab.loads.units import SECOND


def starts(process: OpenProcess, count: int = 20_000, seed: int = 1) -> list[int]:
    """The first of a process."""
    return list(itertools.islice(process.starts(Draws(seed)), count))


def within(times: list[int], begin: float, end: float) -> int:
    """How many lie in [begin, end), in seconds."""
    return sum(begin * SECOND <= time < end * SECOND for time in times)


@given(
    st.sampled_from(
        [
            Constant(3),
            Poisson(3),
            Gamma(3, 0.3),
            Gamma(3, 5),
            Burst(4, SECOND),
            Ramp(0, 5, 20 * SECOND),
            Ramp(5, 0.1, 20 * SECOND, cv=2),
            OnOff(9, SECOND, SECOND),
            OnOff(9, SECOND, SECOND, off_rate=1, phases="exponential", cv=0),
        ]
    ),
    st.integers(0, 10**9),
)
def test_every_process_begins_at_zero_and_never_goes_back(process: OpenProcess, seed: int) -> None:
    """Times are whole nanoseconds in ascending order from 0, the same for the same seed."""
    times = starts(process, 200, seed)

    assert times[0] == 0
    assert times == sorted(times)
    assert {type(time) for time in times} == {int}
    assert times == starts(process, 200, seed)


def test_constant_arrivals_have_equal_gaps_that_do_not_drift() -> None:
    """At 3 a second the gaps are a third of a second, to the nanosecond, after 20,000 of them too."""
    times = starts(Constant(3))

    assert times[19_998] == 6666 * SECOND
    assert {after - before for before, after in itertools.pairwise(times)} == {333_333_333, 333_333_334}


@pytest.mark.parametrize(
    ("process", "cv"),
    [
        (Constant(7), 0),
        (Poisson(7), 1),
        (Gamma(7, 0), 0),
        (Gamma(7, 1e-200), 0),
        (Gamma(7, 0.4), 0.4),
        (Gamma(7, 1), 1),
        (Gamma(7, 3), 3),
    ],
)
def test_the_gaps_sent_have_the_rate_and_the_cv_asked_for(process: OpenProcess, cv: float) -> None:
    """A "constant" load with exponential gaps is no constant load."""
    times = starts(process)

    assert rate(times) == pytest.approx(7, rel=0.05)
    assert cv_of_gaps(times) == pytest.approx(cv, rel=0.06, abs=1e-6)


def test_poisson_counts_disperse_alike_at_all_scales() -> None:
    """Variance over mean of the counts is 1 in windows of 1 and of 10 seconds."""
    times = starts(Poisson(7), 60_000)

    assert dispersion(times, SECOND) == pytest.approx(1, abs=0.06)
    assert dispersion(times, 10 * SECOND) == pytest.approx(1, abs=0.2)


def test_a_burst_is_at_one_instant_and_comes_again_when_asked() -> None:
    """Fifty at 0 and no more, or four every second."""
    assert starts(Burst(50)) == [0] * 50
    assert starts(Burst(4, SECOND), 9) == [0] * 4 + [SECOND] * 4 + [2 * SECOND]


def test_a_ramp_goes_evenly_from_one_rate_to_the_other_and_stays() -> None:
    """From 10 to 50 a second in 100 s: 15 a second on average in the first quarter, 45 in the last, 50 after."""
    times = starts(Ramp(10, 50, 100 * SECOND))

    assert within(times, 0, 25) / 25 == pytest.approx(15, rel=0.1)
    assert within(times, 75, 100) / 25 == pytest.approx(45, rel=0.1)
    assert within(times, 100, 300) / 200 == pytest.approx(50, rel=0.05)


def test_an_even_ramp_hits_the_times_of_its_formula() -> None:
    """Without randomness the k-th request is due when the cumulative rate reaches k; a ramp down to 0 ends."""
    times = starts(Ramp(0, 2, 10 * SECOND, cv=0), 12)  # cumulative: t² / 10, then 10 + 2 (t - 10)
    assert times[:3] == [0, round(10**0.5 * SECOND), round(20**0.5 * SECOND)]
    assert times[10:12] == [10 * SECOND, round(10.5 * SECOND)]

    down = starts(Ramp(2, 0, 10 * SECOND, cv=0))  # cumulative: 2 t - t² / 10, which is 10 at the end
    assert len(down) == 11
    assert down[5] == round((10 - 50**0.5) * SECOND)
    assert down[10] == 10 * SECOND


def test_on_off_traffic_is_on_and_off() -> None:
    """20 a second for 5 s, none for 25 s, and so on; with an off_rate a trickle remains."""
    times = starts(OnOff(20, 5 * SECOND, 25 * SECOND), 6_000)
    phase = np.array(times) % (30 * SECOND)
    assert (phase <= 5 * SECOND).all()
    assert rate(times) == pytest.approx(20 * 5 / 30, rel=0.1)

    trickle = np.array(starts(OnOff(20, 5 * SECOND, 25 * SECOND, off_rate=1), 6_000)) % (30 * SECOND)
    assert (trickle > 5 * SECOND).mean() == pytest.approx(25 / 125, abs=0.03)


def test_on_off_without_randomness_is_exact() -> None:
    """Two a second while on: at 0, 0.5, 1 s, then the count goes on where it stopped, 2 s later."""
    times = starts(OnOff(2, SECOND, 2 * SECOND, cv=0), 6)

    assert times == [0, SECOND // 2, SECOND, round(3.5 * SECOND), 4 * SECOND, round(6.5 * SECOND)]


def test_exponential_phases_have_their_means() -> None:
    """Half on and half off on average, and no two phases alike."""
    times = starts(OnOff(20, SECOND, SECOND, phases="exponential"), 20_000)
    silences = np.diff(times)[np.diff(times) > SECOND // 2]

    assert rate(times) == pytest.approx(10, rel=0.1)
    assert len(set(silences)) == len(silences)
    assert silences.std() > SECOND // 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ClosedLoop(0), "users is 0"),
        (lambda: Constant(0), "rate is 0; it is in requests a second, above 0"),
        (lambda: Poisson(-1), "rate is -1"),
        (lambda: Gamma(1, -1), "cv is -1; it is between 0"),
        (lambda: Gamma(1, 1000), "cv is 1000"),
        (lambda: Burst(0), "size is 0"),
        (lambda: Burst(1, 0), "every is 0 ns"),
        (lambda: Ramp(-1, 1, 5), "start_rate is -1"),
        (lambda: Ramp(0, 0, 5), "end_rate is 0, and start_rate too"),
        (lambda: Poisson(1e-300), "rate is 1e-300"),
        (lambda: Ramp(0, 1, 0), "over is 0"),
        (lambda: OnOff(1, 0, 1), "on is 0"),
        (lambda: OnOff(1, 1, 1, off_rate=-1), "off_rate is -1"),
        (lambda: OnOff(1, 1000, 1), r"on is 1e-06s: at rate 1 only 1e-06 requests are expected"),
    ],
)
def test_impossible_arrivals_are_refused(make: Callable[[], Arrivals], message: str) -> None:
    """The message has the key and the value."""
    with pytest.raises(ConfigError, match=message):
        make()
