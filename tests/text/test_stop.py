import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import RequestError
from chairlift.text.stop import StopChecker

LETTERS = st.text("ab", max_size=24)
STOPS = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)


def expected(text: str, stops: list[str], *, include: bool) -> tuple[str, str | None]:
    """The same by looking at every beginning of the text: the first at whose end a stop string is complete."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


def cut(text: str, places: list[int]) -> list[str]:
    """The text in pieces, cut at these places."""
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[left:right] for left, right in itertools.pairwise(edges)]


@given(text=LETTERS, stops=STOPS, places=st.lists(st.integers(0, 100), max_size=8), include=st.booleans())
def test_however_the_text_is_cut_it_ends_at_the_first_complete_stop_string(
    *, text: str, stops: list[str], places: list[int], include: bool
) -> None:
    """Pieces, joined, are the text up to the stop string that is complete first, or with it if asked."""
    checker = StopChecker(stops, include_stop_str_in_output=include)

    shown = "".join(checker.push(piece) for piece in cut(text, places)) + checker.flush()

    assert (shown, checker.matched) == expected(text, stops, include=include)


@given(text=LETTERS, stops=STOPS)
def test_nothing_is_withheld_longer_than_it_could_be_a_stop_string(text: str, stops: list[str]) -> None:
    """What is held back is exactly the longest end of the text that begins a stop string."""
    checker = StopChecker(stops)
    shown = ""

    for end, character in enumerate(text, start=1):
        shown += checker.push(character)
        if checker.matched is not None:
            return
        held = text[len(shown) : end]
        beginnings = {stop[:length] for stop in stops for length in range(len(stop))}
        assert held == max((part for part in beginnings | {""} if text[:end].endswith(part)), key=len)


def test_a_stop_string_across_three_tokens_is_cut_out_whole() -> None:
    """Nothing of it is shown, though no token holds it."""
    checker = StopChecker(["</answer>"])

    assert [checker.push(piece) for piece in ("42 <", "/ans", "wer> and more")] == ["42 ", "", ""]
    assert checker.matched == "</answer>"
    assert checker.flush() == ""


def test_a_false_beginning_is_shown_after_all() -> None:
    """Text that turns out to be no stop string passes, at the latest when the text ends."""
    checker = StopChecker(["</answer>"])

    assert [checker.push("a </an"), checker.push("d </answ"), checker.flush()] == ["a ", "</and ", "</answ"]
    assert checker.matched is None


def test_after_a_match_nothing_is_shown() -> None:
    """A stopped text stays as it is, whatever the engine still pushes."""
    checker = StopChecker(["."], include_stop_str_in_output=True)

    assert checker.push("One. Two.") == "One."
    assert checker.push(" Three.") == ""


def test_of_two_complete_at_once_the_longer_is_cut_out() -> None:
    """Stop strings that end at the same character: the one that began first."""
    checker = StopChecker(["b", "ab"])

    assert checker.push("xab") == "x"
    assert checker.matched == "ab"


def test_unarmed_text_passes_and_leaves_no_beginning_behind() -> None:
    """While min_tokens holds nothing stops, and a stop string may not begin there."""
    checker = StopChecker(["ab"])

    assert checker.push("ab a", armed=False) == "ab a"
    assert checker.push("b") == "b"
    assert checker.push("ab") == ""
    assert checker.matched == "ab"


def test_withheld_text_is_shown_when_the_checker_is_disarmed() -> None:
    """Nothing is lost between an armed and an unarmed piece."""
    checker = StopChecker(["abc"])

    assert checker.push("xab") == "x"
    assert checker.push("c", armed=False) == "abc"


def test_without_stop_strings_every_piece_passes() -> None:
    """No stop strings, no withholding."""
    assert StopChecker([]).push("anything") == "anything"


def test_an_empty_stop_string_is_refused() -> None:
    """It would be complete before the first character."""
    with pytest.raises(RequestError, match="empty"):
        StopChecker(["x", ""])
