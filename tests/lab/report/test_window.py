import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ConfigError
from chairlift.lab.report.grid import Grid, grid
from chairlift.lab.report.window import CLOSE_STEPS, MOST_STEPS, chosen, closer, densest
from tests.sim.helpers import SECOND, arrival, run


@pytest.fixture(scope="module")
def long() -> Grid:
    """Eleven hundred steps, of which the densest are in the middle."""
    crowd = [arrival(f"c{n}", 10 * SECOND + n, tokens=4, answer=60) for n in range(6)]
    alone = [arrival(f"a{n}", n * 7 * SECOND // 4, tokens=4, answer=80, number=100 + n) for n in range(13)]
    _, witness = run(sorted([*alone, *crowd], key=lambda one: one.time), policy="continuous", max_num_seqs=8)
    found = grid(witness.steps, witness.shares, witness.decisions)
    assert found is not None
    return found


def test_a_short_run_is_shown_whole() -> None:
    """Up to the most steps that there is room for."""
    _, witness = run([arrival("a", answer=20)], policy="continuous")
    found = grid(witness.steps, witness.shares)
    assert found is not None
    length = found.ends[-1]

    assert chosen([(found, 0)], length) == (0, length)
    assert closer([(found, 0)], (0, length)) is None


def test_of_a_long_run_the_densest_part_is_shown(long: Grid) -> None:
    """With about as many steps as there is room for; and a closer look has fewer."""
    length = long.ends[-1]
    start, stop = chosen([(long, 0)], length)

    assert long.repeats[-1] > MOST_STEPS
    assert start < 10 * SECOND < stop
    assert stop - start == pytest.approx(length * MOST_STEPS / long.repeats[-1], rel=0.01)
    near = closer([(long, 0)], (start, stop))
    assert near is not None
    assert start <= near[0] < near[1] <= stop
    assert near[1] - near[0] < (stop - start) * CLOSE_STEPS / MOST_STEPS * 1.5


@given(st.integers(0, 20 * SECOND), st.integers(1, 20 * SECOND), st.integers(1, 500))
def test_the_densest_part_lies_in_its_span(long: Grid, start: int, length: int, most: int) -> None:
    """Whatever the span."""
    found = densest([(long, 0)], (start, start + length), most)

    assert start <= found[0] < found[1] <= start + length


def test_a_part_may_be_asked_for(long: Grid) -> None:
    """From, to, or both; what lies behind the end is cut."""
    length = long.ends[-1]

    assert chosen([(long, 0)], length, 2 * SECOND, 3 * SECOND) == (2 * SECOND, 3 * SECOND)
    assert chosen([(long, 0)], length, start=SECOND) == (SECOND, length)
    assert chosen([(long, 0)], length, stop=900 * SECOND) == (0, length)


@pytest.mark.parametrize(("start", "stop"), [(3 * SECOND, 2 * SECOND), (900 * SECOND, None)])
def test_an_empty_part_is_refused(long: Grid, start: int, stop: int | None) -> None:
    """With how long the runs are."""
    with pytest.raises(ConfigError, match=r"--from is .* there is nothing between them; the runs are [\d.]+ s long"):
        chosen([(long, 0)], long.ends[-1], start, stop)
