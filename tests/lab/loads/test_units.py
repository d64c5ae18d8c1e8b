import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.lab.loads.units import read_duration, seconds, write_duration


@given(st.integers(min_value=0, max_value=10**18))
def test_a_written_duration_is_read_back_exactly(nanoseconds: int) -> None:
    """Reading what was written gives the same number of nanoseconds."""
    assert read_duration(write_duration(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("2s", 2 * 10**9), ("1.5ms", 1_500_000), ("0", 0), ("250 us", 250_000), ("3µs", 3_000), ("1H", 3600 * 10**9)],
)
def test_units_are_read(text: str, nanoseconds: int) -> None:
    """Each unit has its size, in either case, with or without a space."""
    assert read_duration(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "2 parsecs", "0.5ns", "1s2"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    """A missing unit, a wrong one, a sign or a fraction of a nanosecond: the message shows what would do."""
    with pytest.raises(ValueError, match="such as 250ms"):
        read_duration(text)


def test_seconds_are_a_billionth() -> None:
    """Nanoseconds over 10⁹."""
    assert seconds(2_500_000_000) == 2.5
