from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pytest

from chairlift.core.errors import ConfigError
from chairlift.core.request import Nanoseconds
from chairlift.lab.loads.tables import Reader, nested, write_table


@dataclass(frozen=True)
class Round:
    KIND: ClassVar[str] = "round"
    BARE: ClassVar[str] = "radius"

    radius: int


@dataclass(frozen=True)
class Square:
    KIND: ClassVar[str] = "square"

    side: float = 1.0
    tilt: Nanoseconds = 0

    def __post_init__(self) -> None:
        if self.side < 0:
            raise ConfigError(f"side is {self.side}; it must not be negative.")


@dataclass(frozen=True)
class Frame:
    width: int = 1


@dataclass(frozen=True)
class Picture:
    shape: Round | Square
    colour: Literal["red", "blue"] = "red"
    frame: Frame | None = None
    heavy: bool = False
    title: str = ""
    parts: Mapping[str, Round] = field(default_factory=dict)
    wall: str = field(default="", compare=False)


def read(table: Mapping[str, Any], **options: Any) -> Picture:
    """A picture of a table."""
    picture: Picture = Reader(**options).table(Picture, table)
    return picture


def test_kinds_are_chosen_by_their_word_and_bare_values_fill_the_bare_kind() -> None:
    """`kind` picks a class; a bare number is the kind that takes one; a bare word is a kind with its defaults."""
    assert read({"shape": {"kind": "square", "side": 2}}).shape == Square(2.0)
    assert read({"shape": 3}).shape == Round(3)
    assert read({"shape": "square"}).shape == Square()


def test_all_sorts_of_fields_are_read() -> None:
    """Choices, nested and named tables, truth and durations."""
    table = {
        "shape": {"kind": "square", "tilt": "2ms"},
        "colour": "blue",
        "frame": {"width": 4},
        "heavy": True,
        "parts": {"a": 1, "b": {"kind": "round", "radius": 2}},
    }
    assert read(table) == Picture(
        Square(tilt=2_000_000), "blue", Frame(4), heavy=True, parts={"a": Round(1), "b": Round(2)}
    )
    assert read(write_table(read(table))) == read(table)


def test_defaults_and_what_is_not_compared_are_not_written() -> None:
    """Only what differs from its default is in the table, and never a field outside comparison."""
    assert write_table(Picture(Square(), wall="north")) == {"shape": {"kind": "square"}}


def test_text_is_read_as_numbers_only_where_that_is_said() -> None:
    """A command line writes numbers as text; a file does not."""
    assert read({"shape": {"kind": "square", "side": "2"}, "heavy": "True"}, text=True).heavy
    with pytest.raises(ConfigError, match=r"shape.side is '2'; it is a number\."):
        read({"shape": {"kind": "square", "side": "2"}})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"shape": 1, "color": "red"}, "color is unknown; did you mean colour?"),
        ({"shape": 1, "zzz": 1}, "zzz is unknown; there are shape, colour, frame, heavy, title, parts."),
        ({"shape": {"kind": "square", "sid": 1}}, "shape.sid is unknown; did you mean shape.side?"),
        ({"shape": {"kind": "sqare"}}, "shape.kind is 'sqare'; it is one of round, square (did you mean 'square'?)."),
        ({"shape": {"side": 1}}, "shape.kind is missing; it is one of round, square."),
        ({"shape": {"kind": "round"}}, "shape.radius is missing; the 'round' of shape needs it."),
        ({}, "shape is missing; a load needs it."),
        ({"shape": "big"}, "shape.radius is 'big'; it is a whole number."),
        ({"shape": 1.5}, "shape.radius is 1.5; it is a whole number."),
        ({"shape": True}, "shape.radius is True; it is a whole number."),
        ({"shape": {"kind": "square", "side": float("nan")}}, "shape.side is nan; it is a number."),
        ({"shape": {"kind": "square", "side": -1}}, "shape.side is -1.0; it must not be negative."),
        ({"shape": {"kind": "square", "tilt": 5}}, "shape.tilt is 5; it is a duration with a unit"),
        ({"shape": {"kind": "square", "tilt": "5 m/s"}}, "shape.tilt is '5 m/s'; it is a duration with a unit"),
        ({"shape": 1, "colour": "green"}, "colour is 'green'; it is one of red, blue"),
        ({"shape": 1, "frame": 3}, "frame is 3; it is a table."),
        ({"shape": 1, "title": 3}, "title is 3; it is text."),
        ({"shape": 1, "heavy": 1}, "heavy is 1; it is true or false."),
        ({"shape": 1, "parts": 3}, "parts is 3; it is a table of named tables."),
        ({"shape": 1, "parts": {"a": {"kind": "round", "r": 2}}}, "parts.a.r is unknown"),
        ({"shape": 1, "wall": "north"}, "wall is unknown"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_do(table: dict[str, Any], message: str) -> None:
    """Every message names the key in full, and stands behind the file's name."""
    with pytest.raises(ConfigError) as caught:
        read(table, source="a.toml")

    assert str(caught.value).startswith(f"a.toml: {message}")


def test_pairs_become_tables() -> None:
    """Dots nest; a key that is given both bare and with dots names its kind."""
    assert nested(["a=1", "b.c=2", "b.d.e=x=y", "f=round", "f.radius=3"]) == {
        "a": "1",
        "b": {"c": "2", "d": {"e": "x=y"}},
        "f": {"kind": "round", "radius": "3"},
    }


@pytest.mark.parametrize(
    ("pairs", "message"), [(["a"], "'a' is no key=value"), (["=1"], "'=1' is no key=value"), (["a=1", "a=2"], "twice")]
)
def test_wrong_pairs_are_refused(pairs: list[str], message: str) -> None:
    """A pair without a key or an equals sign, or a second one for the same key."""
    with pytest.raises(ConfigError, match=message):
        nested(pairs)
