import pytest

from chairlift.lab.studies.words import listed, number, percent, seconds, spread


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (0.00001234, "0.000012"), (0.5, "0.5"), (71.25, "71.2"), (1234.5, "1,234"), (-2.0, "-2")],
)
def test_numbers_have_three_digits_that_count_and_no_exponent(value: float | None, text: str) -> None:
    """Whole from a thousand on."""
    assert number(value) == text


def test_quantities_carry_their_units() -> None:
    """Short times in milliseconds, small shares with a decimal."""
    assert [seconds(value) for value in (0.0123, 0.5, None)] == ["12.3 ms", "0.5 s", "-"]
    assert [percent(value) for value in (0.0123, 0.5, None)] == ["1.2%", "50%", "-"]
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"


def test_a_spread_is_the_mean_and_both_ends() -> None:
    """One value, equal values and a missing one are told as such."""
    assert spread([70.0, 72.0]) == "71 (70 to 72)"
    assert spread([70.0]) == spread([70.0, 70.0]) == "70"
    assert spread([70.0, None]) == spread([]) == "-"
