import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.lab.loads.draws import Draws
from chairlift.lab.loads.traces import Ticks, find_ticks, read_trace, spread
from chairlift.lab.loads.units import SECOND
from tests.lab.loads.making import FIXTURES


def poisson(rate: float, count: int) -> list[int]:
    """Arrivals as they were before somebody rounded them."""
    times, now, draws = [], 0.0, Draws(3)
    for index in range(count):
        times.append(round(now * SECOND))
        now -= math.log1p(-draws.uniform("x", index)) / rate
    return times


@pytest.mark.parametrize("tick", [3 * SECOND, SECOND, SECOND // 100])
def test_rounded_times_are_noticed_with_their_tick(tick: int) -> None:
    """Poisson arrivals at 5 a tick, rounded down: the tick, how many distinct values, and of how many."""
    times = [time // tick * tick for time in poisson(5 * SECOND / tick, 2_000)]

    assert find_ticks(times) == Ticks(tick, len(set(times)), 2_000)


def test_exact_times_are_left_alone() -> None:
    """Random times, equal gaps and bursts too few to tell by are no ticks; neither are times exact to a microsecond."""
    assert find_ticks(poisson(5, 2_000)) is None
    assert find_ticks([number * SECOND for number in range(100)]) is None
    assert find_ticks([0] * 50 + [10 * SECOND] * 50) is None
    assert find_ticks([time // 1000 * 1000 for time in poisson(500_000, 2_000)]) is None
    assert find_ticks([]) is None


def test_mooncakes_ticks_of_three_seconds_are_noticed_though_they_drift() -> None:
    """Some of its gaps are 2.999 s and 3.001 s."""
    times = read_trace(FIXTURES / "mooncake_conversation_trace.jsonl").times
    assert any((after - before) % (3 * SECOND) for before, after in pairwise(times))

    ticks = find_ticks(times)

    assert ticks == Ticks(3 * SECOND, 19, 60)
    assert str(ticks) == "times come in ticks of 3s: 19 distinct values in 60 requests"


@pytest.mark.parametrize("file", ["AzureLLMInferenceTrace_conv.csv", "qwen_bailian.jsonl"])
def test_traces_with_exact_times_have_no_ticks(file: str) -> None:
    """Azure's and Bailian's are exact."""
    assert find_ticks(read_trace(FIXTURES / file).times) is None


def test_burstgpts_whole_seconds_are_noticed() -> None:
    """The tick is a second although many seconds are empty."""
    assert find_ticks(read_trace(FIXTURES / "burstgpt.csv").times) == Ticks(SECOND, 5, 9)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(0, 2**32))
def test_spreading_keeps_the_order_and_every_request_in_its_tick(ticks: list[int], seed: int) -> None:
    """No time moves back, or to the next tick; the same seed spreads alike."""
    tick = 1_000_000
    times = [number * tick for number in sorted(ticks)]

    moved = spread(times, Ticks(tick, len(set(times)), len(times)), Draws(seed))

    assert list(moved) == sorted(moved)
    assert all(0 <= after - before < tick for before, after in zip(times, moved, strict=True))
    assert moved == spread(times, Ticks(tick, 0, 0), Draws(seed))


def test_a_short_tick_is_not_overrun() -> None:
    """Where a tick came early, its forerunner's requests end before it."""
    times = [0] * 50 + [600] * 50

    moved = spread(times, Ticks(1000, 2, 100), Draws(1))

    assert max(moved[:50]) < 600
    assert len(set(moved)) > 80
