from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.cli.units import DURATION, NUMBER, PATH, SIZE, TEXT_LIST, WHOLE, WHOLE_LIST, Kind, choice


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (DURATION, "50ms", 50_000_000),
        (DURATION, "1.5s", 1_500_000_000),
        (DURATION, "200us", 200_000),
        (DURATION, "200µs", 200_000),
        (DURATION, "0.3us", 300),
        (DURATION, "7ns", 7),
        (DURATION, "2 m", 120_000_000_000),
        (DURATION, ".5S", 500_000_000),
        (DURATION, "0", 0),
        (SIZE, "2GiB", 2 << 30),
        (SIZE, "512mib", 512 << 20),
        (SIZE, "1.5GB", 1_500_000_000),
        (SIZE, "100 kB", 100_000),
        (SIZE, "0", 0),
        (WHOLE, "-3", -3),
        (NUMBER, "0.9", 0.9),
        (WHOLE_LIST, "4, 8", (4, 8)),
        (WHOLE_LIST, "", ()),
        (TEXT_LIST, "a,b", ("a", "b")),
        (PATH, "x/y", Path("x/y")),
    ],
)
def test_a_quantity_is_read_exactly(kind: Kind, text: str, value: object) -> None:
    """A quantity with its unit becomes the exact value, whatever the unit's case."""
    assert kind.read(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "hint"),
    [
        (DURATION, "50", "with a unit"),
        (DURATION, "fast", "50ms"),
        (DURATION, "-1s", "with a unit"),
        (DURATION, "0.5ns", "not a whole number"),
        (DURATION, "1e3s", "with a unit"),
        (SIZE, "2", "with a unit"),
        (SIZE, "2GX", "2GiB"),
        (WHOLE, "3.5", "whole number"),
        (NUMBER, "nan", "finite"),
        (NUMBER, "much", "0.9"),
        (WHOLE_LIST, "4;8", "commas"),
        (PATH, "", "a path"),
        (choice(("static", "dynamic")), "Dynamics", "did you mean dynamic"),
        (choice(("static", "dynamic")), "xyz", "one of static, dynamic"),
    ],
)
def test_a_wrong_quantity_says_what_would_do(kind: Kind, text: str, hint: str) -> None:
    """What cannot be read is answered with an example of what can."""
    with pytest.raises(ValueError, match=hint):
        kind.read(text)


@given(st.sampled_from([DURATION, SIZE]), st.integers(0, 10**15))
def test_what_is_written_can_be_read_back(kind: Kind, value: int) -> None:
    """Writing a duration or size loses nothing."""
    assert kind.read(kind.write(value)) == value


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_an_explained_error(text: str) -> None:
    """No text makes a reader fail in any other way than ValueError."""
    for kind in (DURATION, SIZE, WHOLE, NUMBER, WHOLE_LIST):
        try:
            kind.read(text)
        except ValueError as error:
            assert str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("value", "text"),
    [(50_000_000, "50ms"), (1_500_000_000, "1.5s"), (30 * 10**9, "30s"), (200_000, "200us"), (0, "0"), (7, "7ns")],
)
def test_a_duration_is_written_as_people_write_it(value: int, text: str) -> None:
    """Defaults in a help text carry the unit a reader would choose."""
    assert DURATION.write(value) == text
