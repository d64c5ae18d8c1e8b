import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.request import FinishReason
from chairlift.engine.answer import Answer
from chairlift.engine.outputs import OutputDelta
from chairlift.engine.params import SamplingParams
from tests.engine.tiny import END, byte_tokenizer

TOKENIZER = byte_tokenizer()


def ignore(delta: OutputDelta) -> None:
    """An answer that nobody reads."""


def answer_with(**params: object) -> Answer:
    """An answer to a prompt of three tokens that arrived at 100 ns."""
    sampling = SamplingParams(**params)  # type: ignore[arg-type]
    ends = sampling.stop_ids(frozenset({END}))
    return Answer("a", prompt_tokens=3, params=sampling, stop_ids=ends, tokenizer=TOKENIZER, arrival=100, sink=ignore)


def say(answer: Answer, data: bytes, now: int = 200) -> FinishReason | None:
    """Push the bytes as tokens, computed one nanosecond apart, until one of them stops the answer."""
    for place, token in enumerate(data):
        reason = answer.push(token)
        answer.computed(now + place)
        if reason is not None:
            return reason
    return None


@given(st.text(max_size=12), st.lists(st.integers(0, 3), max_size=20))
def test_text_leaves_in_whole_characters_and_adds_up(text: str, cuts: list[int]) -> None:
    """However tokens are released in groups, each piece is whole characters, and together they are the text."""
    data = text.encode()
    answer = answer_with()
    pieces, place = [], 0
    for size in [*cuts, len(data)]:
        group = data[place : place + size]
        place += len(group)
        say(answer, group)
        pieces.append(answer.take(list(group), 300))
    pieces.append(answer.end([], 300, FinishReason.LENGTH, ""))

    assert "".join(piece.text for piece in pieces) == text
    assert b"".join(bytes(piece.token_ids) for piece in pieces) == data
    assert pieces[-1].output_tokens == len(data)


def test_half_a_character_becomes_a_replacement_at_the_end() -> None:
    """An answer cut off inside a character shows U+FFFD, and only then."""
    answer = answer_with()
    say(answer, "é".encode()[:1])

    assert answer.take([0xC3], 300).text == ""
    assert answer.end([], 300, FinishReason.LENGTH, "").text == "\ufffd"


@pytest.mark.parametrize(("include", "text"), [(False, "one"), (True, "one.\n")])
def test_a_stop_string_ends_the_answer(include: bool, text: str) -> None:  # noqa: FBT001
    """What comes before it is the answer, with it if asked for; the last token is the one that completed it."""
    answer = answer_with(stop=["!", ".\n"], include_stop_str_in_output=include)

    assert say(answer, b"one.\ntwo") is FinishReason.STOP
    delta = answer.end(list(b"one.\n"), 300, FinishReason.STOP, "")

    assert (delta.text, delta.stop_reason, delta.output_tokens) == (text, ".\n", 5)


def test_the_beginning_of_a_stop_string_is_withheld_until_it_is_none() -> None:
    """Nothing is shown that may have to be taken back."""
    answer = answer_with(stop=["<end>"])
    say(answer, b"a<en")
    first = answer.take(list(b"a<en"), 300)
    say(answer, b"b")
    second = answer.take(list(b"b"), 301)

    assert (first.text, second.text) == ("a", "<enb")


def test_what_is_withheld_leaves_with_the_end() -> None:
    """An answer that ends by length in the middle of a would-be stop string keeps its text."""
    answer = answer_with(stop=["<end>"])
    say(answer, b"a<en")

    assert answer.end(list(b"a<en"), 300, FinishReason.LENGTH, "").text == "a<en"


@pytest.mark.parametrize(("include", "text"), [(False, "hi"), (True, "hiX")])
def test_a_stop_tokens_text_is_left_out_unless_asked_for(include: bool, text: str) -> None:  # noqa: FBT001
    """The token itself is in the ids either way, and it is the stop_reason."""
    answer = answer_with(stop_token_ids=[ord("X")], include_stop_str_in_output=include)

    assert say(answer, b"hiX") is None  # the scheduler ends it
    delta = answer.end(list(b"hiX"), 300, FinishReason.STOP, "")

    assert (delta.text, delta.stop_reason, delta.token_ids) == (text, ord("X"), tuple(b"hiX"))


def test_withheld_text_survives_a_stop_token() -> None:
    """A stop token in the middle of a would-be stop string ends the answer with all its text."""
    answer = answer_with(stop=["<end>"], stop_token_ids=[ord("X")])
    say(answer, b"a<eX")

    assert answer.end(list(b"a<eX"), 300, FinishReason.STOP, "").text == "a<e"


def test_stops_count_only_after_min_tokens() -> None:
    """A stop string within the first min_tokens, and one that begins in them, passes as text."""
    answer = answer_with(stop=["b", "cd"], min_tokens=3)

    assert say(answer, b"abcd") is None
    assert say(answer, b"xb") is FinishReason.STOP
    assert answer.end([], 300, FinishReason.STOP, "").text == "abcdx"


@pytest.mark.parametrize(("skip", "text"), [(True, ""), (False, "<end>")])
def test_control_tokens_show_only_when_asked_for(skip: bool, text: str) -> None:  # noqa: FBT001
    """skip_special_tokens keeps them out of the text, never out of the ids."""
    answer = answer_with(ignore_eos=True, skip_special_tokens=skip)
    answer.push(END)

    delta = answer.end([END], 300, FinishReason.LENGTH, "")

    assert (delta.text, delta.token_ids) == (text, (END,))


def test_the_record_has_the_moments() -> None:
    """Gaps lie between computed tokens; a token released later than computed makes the answer unstreamed."""
    answer = answer_with()
    for now in (200, 230, 290):
        answer.push(65)
        answer.computed(now)
    answer.finished = 290
    answer.end([65] * 3, 400, FinishReason.LENGTH, "")

    record = answer.record(policy="static", now=400, reason=FinishReason.LENGTH, error="")

    assert (record.arrival, record.first_token_computed, record.first_token_released) == (100, 200, 400)
    assert (record.finished, record.released, record.streamed) == (290, 400, False)
    assert record.token_gaps == (30, 60)
    assert record.output_tokens == 3


def test_tokens_released_as_computed_are_streamed() -> None:
    """One token in each step, released in it: the time between tokens is observable."""
    answer = answer_with()
    for now in (200, 230):
        answer.push(65)
        answer.computed(now)
        answer.take([65], now)
    answer.end([], 230, FinishReason.CANCELLED, "")

    record = answer.record(policy="continuous", now=230, reason=FinishReason.CANCELLED, error="")

    assert record.streamed
    assert record.first_token_released == 200
