from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.records.client import RequestTrace
from chairlift.records.steady import (
    PEAK_SHARE,
    Level,
    levels,
    little,
    rank_correlation,
    stationarity,
    time_mean,
    window,
)
from tests.records.traces import MS, health, runs, trace


def closed_loop(users: int, each: int, rounds: int) -> list[RequestTrace]:
    """Users with one request after the other, each so many ms, the next sent in the same moment."""
    return [
        trace(round_ * users + user, round_ * each, chunks=[(round_ * each + 1, 1)], end=(round_ + 1) * each)
        for round_ in range(rounds)
        for user in range(users)
    ]


def open_loop(count: int, gap: int, stay: list[int]) -> list[RequestTrace]:
    """One request each `gap` ms; the time of each until its first token, which is also its last."""
    return [trace(i, i * gap, chunks=[(i * gap + stay[i], 1)]) for i in range(count)]


def test_levels_count_who_is_in_flight() -> None:
    """0 to 54 and 20 to 90, and a request that was never sent is nowhere."""
    traces = [trace(0), trace(1, 20, chunks=[(90, 1)]), RequestTrace(2, 0, warmup=False, end=500)]

    assert levels(traces) == [Level(0, 20 * MS, 1), Level(20 * MS, 54 * MS, 2), Level(54 * MS, 90 * MS, 1)]


@given(runs)
def test_the_area_under_the_levels_is_the_time_that_requests_were_in_flight(drawn: list[RequestTrace]) -> None:
    """Nothing is lost or counted twice, and the window is within the run and at its level."""
    over = levels(drawn)
    stays = sum(one.end - (one.sent or 0) for one in drawn)
    found = window(over)

    assert sum((one.stop - one.start) * one.in_flight for one in over) == stays
    assert found is not None
    assert time_mean(over, over[0].start, over[-1].stop) == pytest.approx(stays / (over[-1].stop - over[0].start))
    assert over[0].start <= found.start < found.stop <= over[-1].stop
    assert found.peak == max(one.in_flight for one in over)
    longest = max(one.stop - one.start for one in over if one.in_flight >= PEAK_SHARE * found.peak)
    assert found.stop - found.start >= longest


def test_the_window_leaves_out_ramp_and_tail() -> None:
    """Ten users join one each 100 ms; eight of them are 80%; they leave together at 10 s."""
    traces = [trace(i, i * 100, chunks=[(i * 100 + 1, 1)], end=10_000) for i in range(10)]
    found = window(levels(traces))

    assert found is not None
    assert (found.start, found.stop, found.peak) == (700 * MS, 10_000 * MS, 10)
    assert found.share == 0.93


def test_a_closed_loop_of_one_user_is_steady_throughout() -> None:
    """The moment between an answer and the next request does not end the window; a long pause does."""
    short = [trace(i, i * 100, chunks=[(i * 100 + 1, 1)], end=i * 100 + 99) for i in range(20)]
    paused = [*short, trace(20, 5000, chunks=[(5001, 1)], end=5100)]

    for traces, stop in ((short, 1999), (paused, 1999)):
        found = window(levels(traces))
        assert found is not None
        assert (found.start, found.stop) == (0, stop * MS)


def test_nothing_in_flight_has_no_window() -> None:
    """An empty run is not steady, it is nothing."""
    assert window(levels([])) is None
    assert stationarity([], []).stationary is None


@given(st.randoms(use_true_random=False))
def test_a_run_that_keeps_up_is_stationary(random: Random) -> None:
    """Times to first token that vary by half around 400 ms, without a trend."""
    stays = [random.randint(300, 500) for _ in range(80)]
    traces = open_loop(80, 50, stays)
    judged = stationarity(traces, levels(traces))

    assert (judged.ttft_grows, judged.in_flight_grows, judged.stationary) == (False, False, True)


def test_an_overloaded_server_is_not_stationary() -> None:
    """A request each 50 ms and one answered each 100 ms: queue and waits grow to the end."""
    traces = open_loop(80, 50, [100 + 50 * i for i in range(80)])
    judged = stationarity(traces, levels(traces))

    assert (judged.ttft_grows, judged.in_flight_grows, judged.stationary) == (True, True, False)
    assert judged.ttft is not None
    assert judged.in_flight is not None
    assert judged.ttft[1] > 2 * judged.ttft[0]
    assert judged.in_flight[1] > 2 * judged.in_flight[0]


def test_a_warm_up_that_slows_the_first_quarter_only_does_not_count() -> None:
    """Slow at first, even afterwards."""
    traces = open_loop(80, 50, [2000] * 15 + [400] * 65)

    assert stationarity(traces, levels(traces)).stationary is True


def test_a_few_requests_tell_nothing() -> None:
    """Seven in a quarter are too few to call a run stationary."""
    traces = open_loop(28, 50, [100] * 28)

    assert stationarity(traces, levels(traces)).stationary is None


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(1, 10), (2, 20), (3, 90)], 1),
        ([(1, 3), (2, 2), (3, 1)], -1),
        ([(1, 5), (2, 5), (3, 5)], 0),
        ([(1, 1), (2, 2), (3, 2), (4, 3)], 0.9486832980505138),
    ],
)
def test_rank_correlation_is_spearmans(points: list[tuple[float, float]], expected: float) -> None:
    """Ties share their mean rank; a constant correlates with nothing."""
    assert rank_correlation(points) == pytest.approx(expected)


def test_littles_law_holds_on_a_closed_loop_and_fails_on_lost_traces() -> None:
    """Four users for 10 s; without half the traces, X R is half of what the client's samples saw."""
    traces = closed_loop(users=4, each=100, rounds=100)
    samples = [health(second * 1000, 4) for second in range(1, 11)]

    whole, lost = little(traces, samples), little(traces[::2], samples)

    assert (whole.sampled, whole.expected, whole.holds) == (4, 4, True)
    assert (lost.sampled, lost.expected, lost.holds) == (4, 2, False)


def test_a_check_with_one_side_missing_says_nothing() -> None:
    """Without samples, with few, or without traces."""
    traces = closed_loop(users=1, each=100, rounds=10)

    assert little(traces, []).holds is None
    assert little(traces, [health(1000, 1)]).holds is None
    assert little([], [health(second * 1000, 1) for second in range(1, 7)]).holds is None


def test_a_peak_of_nothing_has_no_window() -> None:
    """Requests that were turned away in the moment they came were never in flight."""
    turned_away = [trace(i, i * 100, chunks=(), end=i * 100) for i in range(5)]

    assert window(levels(turned_away)) is None
