import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import DeviceModelError
from chairlift.devices.curve import Curve, Line, Table, floor_sum, rounded_sum
from tests.devices.helpers import tables


@given(
    count=st.integers(0, 200),
    divisor=st.integers(1, 10**7),
    step=st.integers(-(10**9), 10**9),
    start=st.integers(-(10**12), 10**12),
)
def test_floor_sum_equals_adding_up(count: int, divisor: int, step: int, start: int) -> None:
    """The sum of rounded-down quotients along a line, rising or falling."""
    assert floor_sum(count, divisor, step, start) == sum((start + k * step) // divisor for k in range(count))


def test_floor_sum_of_a_trillion_steps_is_immediate() -> None:
    """Adding up k // 3 over 0 .. 10**12 - 1 equals its closed formula."""
    assert floor_sum(10**12, 3, 1, 0) == (10**12 - 1) * (10**12 - 2) // 6


@given(
    curve=tables() | st.integers(0, 10**9).map(Line),
    x=st.integers(0, 5_000),
    growth=st.integers(0, 40),
    steps=st.integers(1, 150),
    constant=st.integers(0, 10**10),
)
def test_a_rounded_sum_equals_rounding_every_step(curve: Curve, x: int, growth: int, steps: int, constant: int) -> None:
    """Through the flat start, over the points and beyond the last line of a table, rising or falling."""
    stepped = sum((constant + curve.at(x + k * growth)) // 10**6 for k in range(steps))

    assert rounded_sum(curve.pieces(x, growth, steps), constant, 10**6) == stepped


def test_a_table_is_interpolated_on_straight_lines() -> None:
    """Half-way between two points is half-way between their values, not between their logarithms."""
    table = Table((10, 1000), (100, 10_000))

    assert table.at(505) == 5050
    assert table.at(0) == 100, "below the first point its value holds"
    assert table.at(2000) == 20_000, "beyond the last point the line goes on"


def test_a_falling_last_line_ends_at_zero() -> None:
    """Extrapolation never makes a cost negative."""
    assert Table((0, 10), (100, 50)).at(1000) == 0


@pytest.mark.parametrize(
    ("xs", "ys"),
    [((1,), (1,)), ((1, 2), (1,)), ((2, 1), (1, 1)), ((1, 1), (1, 2)), ((1, 2), (1, -1)), ((-1, 2), (1, 1))],
)
def test_what_is_no_curve_is_refused(xs: tuple[int, ...], ys: tuple[int, ...]) -> None:
    """Too few points, unequal columns, positions that do not rise, negative values."""
    with pytest.raises(DeviceModelError):
        Table(xs, ys)
