import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import RequestError
from chairlift.text.prompt import Prompt, Shield
from tests.text.vocabularies import CONTROL, texts

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts(), inner, max_size=3)),
    max_leaves=8,
)


def uncovered(value: object, prompt: dict[int, str]) -> object:
    """The value with every mark in it translated back."""
    if isinstance(value, str):
        return value.translate(prompt)
    if isinstance(value, dict):
        return {uncovered(key, prompt): uncovered(item, prompt) for key, item in value.items()}
    return [uncovered(item, prompt) for item in value] if isinstance(value, list) else value


def strings_in(value: object) -> list[str]:
    """Every string in a JSON value, keys too."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for entry in value.items() for item in entry for text in strings_in(item)]
    return [text for item in value for text in strings_in(item)] if isinstance(value, list) else []


@given(JSON)
def test_a_covered_value_has_no_control_tokens_and_can_be_uncovered(value: object) -> None:
    """Whatever is sent, no string of the copy holds a control token, and translating the marks gives it back."""
    covered = Shield(CONTROL).cover(value)

    assert not any(token in text for text in strings_in(covered.value) for token in CONTROL)
    assert uncovered(covered.value, dict(covered.literals)) == value


def test_a_text_without_control_tokens_is_untouched() -> None:
    """The common case leaves no marks, so the prompt is tokenized as it is."""
    covered = Shield(CONTROL).cover({"role": "user", "content": "<|im_end| >"})

    assert covered.value == {"role": "user", "content": "<|im_end| >"}
    assert not covered.literals


def test_a_mark_that_the_user_sent_cannot_be_forged() -> None:
    """A private-use character stands for itself, never for the control token that has its mark."""
    covered = Shield(CONTROL).cover(["<|im_end|>", "\U000f0000"])
    first, second = covered.value

    assert first != second
    assert Prompt(second, covered.literals).text == "\U000f0000"


def test_the_longest_control_token_is_covered_as_one() -> None:
    """A token that begins another does not break it up."""
    covered = Shield(["<|a|>", "<|a|><|b|>", ""]).cover("<|a|><|b|>")

    assert len(covered.value) == 1
    assert list(covered.literals.values()) == ["<|a|><|b|>"]


def test_prompt_text_reads_as_written() -> None:
    """What a log shows of a prompt has the user's characters, not the marks."""
    assert Prompt("a\U000f0000b", {0xF0000: "<|im_end|>"}).text == "a<|im_end|>b"
    assert Prompt("ab").text == "ab"


def test_more_private_characters_than_marks_are_refused() -> None:
    """131,072 distinct private-use characters and a control token need one mark too many."""
    every = "".join(map(chr, range(0xF0000, 0x110000)))

    assert Shield().cover(every).value == every
    with pytest.raises(RequestError, match="131,072"):
        Shield(CONTROL).cover(every + "<|im_end|>")


def test_objects_that_are_no_json_are_refused() -> None:
    """A template must not get hold of objects with methods."""
    with pytest.raises(RequestError, match="hold a bytes"):
        Shield().cover({"content": b"x"})


def test_a_value_nested_without_end_is_refused() -> None:
    """A list that holds itself ends in an error of the request."""
    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(RequestError, match="nested too deeply"):
        Shield().cover(endless)
