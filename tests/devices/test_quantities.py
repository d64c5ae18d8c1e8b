import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import DeviceModelError
from chairlift.devices.quantities import (
    femtoseconds,
    read_size,
    read_time,
    show_size,
    show_time,
    write_size,
    write_time,
)


@given(st.integers(0, 10**24))
def test_a_time_survives_being_written_and_read(time: int) -> None:
    """Every whole number of femtoseconds is written exactly."""
    assert read_time(write_time(time)) == time


@given(st.integers(0, 10**15))
def test_a_size_survives_being_written_and_read(size: int) -> None:
    """Every whole number of bytes is written exactly."""
    assert read_size(write_size(size)) == size


@pytest.mark.parametrize(
    ("text", "time"), [("22.3us", 22_300_000_000), ("0", 0), ("1 s", 10**15), ("0.5ps", 500), ("7fs", 7)]
)
def test_times_are_read_with_their_unit(text: str, time: int) -> None:
    """From seconds to femtoseconds; only zero needs no unit."""
    assert read_time(text) == time


@pytest.mark.parametrize("text", ["22", "-1ms", "1.5fs", "1h", "ms", "", "1e3ms", "NaN"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """A missing or unknown unit, a sign, an exponent, and fractions of a femtosecond."""
    with pytest.raises(DeviceModelError):
        read_time(text)


@pytest.mark.parametrize("text", ["80", "1.5B", "1PB", "-1GiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """A missing or unknown unit, a sign, and fractions of a byte."""
    with pytest.raises(DeviceModelError):
        read_size(text)


def test_units_are_the_largest_that_fit() -> None:
    """22.3us rather than 0.0223ms; GiB only where nothing is left over."""
    assert write_time(22_300_000_000) == "22.3us"
    assert write_size(80 << 30) == "80GiB"
    assert write_size((80 << 30) + 1024) == "83886081KiB"


def test_estimates_keep_five_digits() -> None:
    """A fitted 6.231050698507 ms becomes 6.2311 ms."""
    assert write_time(femtoseconds(6.231050698507e-3)) == "6.2311ms"


def test_people_read_three_digits() -> None:
    """Times and sizes in messages are short."""
    assert show_time(7_021_900) == "7.02 ms"
    assert show_time(12.5) == "12.5 ns"
    assert show_size(1440 << 20) == "1,440 MiB"
    assert show_size(80 << 30) == "80.0 GiB"
