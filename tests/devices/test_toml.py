from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import DeviceModelError
from chairlift.devices.toml import load, parse, render

# Lone surrogates are no text that a file could hold.
texts = st.text(st.characters(codec="utf-8"), max_size=12)
values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
    st.lists(texts),
    st.booleans(),
)


@given(st.dictionaries(texts.filter(bool), values, max_size=4), st.dictionaries(texts.filter(bool), values, max_size=4))
def test_what_is_rendered_is_read_back(top: dict[str, Any], inner: dict[str, Any]) -> None:
    """Any strings, numbers and lists, any keys, in the first section and in a named one."""
    top.pop("inner", None)

    root = parse(render([("", top), ("inner", inner)]), "test")

    assert root.values() == {**top, "inner": inner}


def test_numbers_are_written_for_reading() -> None:
    """Underscores between thousands; what is None is left out; long lists take a line for each item."""
    assert render([("a", {"n": 1_234_567, "gone": None})]) == "[a]\nn = 1_234_567\n"
    assert render([("", {"long": ["x" * 60, "y" * 60]})]).count("\n") == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 'x'", "test: a is 'x'; it must be a int"),
        ("b = 1", "test: a is missing"),
        ("a = true", "test: a is True"),
        ("a = -1", "at least 0"),
        ("a = ", "test is no TOML"),
    ],
)
def test_a_wrong_value_is_named_with_its_file_and_key(text: str, message: str) -> None:
    """Another kind, missing, true for a number, below the least, and no TOML at all."""
    with pytest.raises(DeviceModelError, match=message):
        parse(text, "test").whole("a")


def test_a_key_that_nobody_asked_for_is_refused() -> None:
    """A misspelt key would otherwise count for nothing; in a section inside, it is named with its path."""
    section = parse("[step]\nflor = '1ms'", "test").section("step")
    section.value("floor", str, "0")

    with pytest.raises(DeviceModelError, match=r"test: step\.flor is unknown here; known are floor"):
        section.done()


def test_lists_hold_one_kind() -> None:
    """Strings where strings are asked for, whole numbers where those are."""
    root = parse("a = ['x', 1]\nb = [1, 'x']\nc = 3", "test")

    with pytest.raises(DeviceModelError, match="list of strings"):
        root.texts("a")
    with pytest.raises(DeviceModelError, match="list of whole numbers"):
        root.wholes("b")
    with pytest.raises(DeviceModelError, match=r"section \[c\] is missing"):
        root.section("c")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With its path."""
    with pytest.raises(DeviceModelError, match=r"gone\.toml"):
        load(tmp_path / "gone.toml")
