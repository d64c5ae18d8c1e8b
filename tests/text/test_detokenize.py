from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.text.detokenize import Detokenizer
from chairlift.text.tokenizer import Tokenizer
from tests.text.vocabularies import byte_level, sentencepiece, space_only_at_start, texts

MAKERS = (byte_level, sentencepiece, space_only_at_start)


def ids_of(make: Callable[[], Tokenizer]) -> st.SearchStrategy[list[int]]:
    """Token ids as a model may sample them: any at all, single bytes more often than not, and real text's."""
    tokenizer = make()
    single = [token_id for token_id in range(tokenizer.vocab_size) if len(tokenizer.piece(token_id)) == 1]
    any_id = st.integers(0, tokenizer.vocab_size + 3)
    real = texts().map(lambda text: tokenizer.encode(text, parse_special=True))
    parts = st.one_of(st.lists(any_id, max_size=4), st.lists(st.sampled_from(single), max_size=6), real)
    return st.lists(parts, max_size=4).map(lambda lists: [token_id for part in lists for token_id in part])


@pytest.mark.parametrize("make", MAKERS)
@given(data=st.data(), skip=st.booleans(), continues=st.booleans())
def test_pieces_add_up_to_the_decoded_text_and_never_take_anything_back(
    *, make: Callable[[], Tokenizer], data: st.DataObject, skip: bool, continues: bool
) -> None:
    """After each token what was emitted is the text so far, short of no more than one unfinished character.

    The three bytes of half a surrogate pair are the longest that decode to nothing: two U+FFFD may then be missing.
    """
    tokenizer, ids = make(), data.draw(ids_of(make))
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip, continues_text=continues)
    emitted = ""

    for count, token_id in enumerate(ids, start=1):
        emitted += detokenizer.push(token_id)
        so_far = tokenizer.decode(ids[:count], skip_special_tokens=skip, continues_text=continues)
        assert so_far.removeprefix(emitted) in {"", "\ufffd", "\ufffd\ufffd"}
        assert so_far.startswith(emitted)
    emitted += detokenizer.flush()

    assert emitted == tokenizer.decode(ids, skip_special_tokens=skip, continues_text=continues)


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
@given(text=texts())
def test_encoded_text_comes_back_as_it_was(*, make: Callable[[], Tokenizer], text: str) -> None:
    """Tokens of a text, pushed one by one, give the text; no piece holds half a character."""
    # SentencePiece puts another space of its own after an added token, and cannot tell U+2581 from a space.
    text = text.replace("<tool_call>", "").replace("\u2581", "")
    tokenizer = make()
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=False, continues_text=False)

    pieces = [detokenizer.push(token_id) for token_id in tokenizer.encode(text, add_special_tokens=False)]

    assert "".join(pieces) == text
    assert detokenizer.flush() == ""


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
def test_an_emoji_of_several_tokens_appears_whole(make: Callable[[], Tokenizer]) -> None:
    """Four bytes in four tokens: nothing, nothing, nothing, the emoji."""
    tokenizer = make()
    byte_ids = {tokenizer.piece(token_id): token_id for token_id in range(tokenizer.vocab_size)}
    detokenizer = Detokenizer(tokenizer)

    pieces = [detokenizer.push(byte_ids[bytes((byte,))]) for byte in "\U0001f980".encode()]

    assert pieces == ["", "", "", "\U0001f980"]


def test_a_replacement_character_that_the_model_wrote_is_not_withheld() -> None:
    """U+FFFD as a character is as good as any other: emitted with its last byte."""
    tokenizer = byte_level()
    ids = tokenizer.encode("\ufffd")
    detokenizer = Detokenizer(tokenizer)

    assert [detokenizer.push(token_id) for token_id in ids][-1] == "\ufffd"
    assert detokenizer.flush() == ""


def test_broken_bytes_show_as_soon_as_they_cannot_become_a_character() -> None:
    """A lead byte waits; an ordinary letter after it settles that it was broken."""
    tokenizer = sentencepiece()
    ids = {tokenizer.piece(token_id): token_id for token_id in range(tokenizer.vocab_size)}
    detokenizer = Detokenizer(tokenizer)

    assert detokenizer.push(ids[b"\xf0"]) == ""
    assert detokenizer.push(ids[b"a"]) == "\ufffda"
    assert detokenizer.push(ids[b"\xe2"]) == ""
    assert detokenizer.flush() == "\ufffd"


def test_control_tokens_are_left_out_unless_asked_for() -> None:
    """skip_special_tokens hides them, and what surrounds them joins."""
    tokenizer = byte_level()
    ids = tokenizer.encode("a<|im_end|>b", parse_special=True)

    hidden, shown = Detokenizer(tokenizer), Detokenizer(tokenizer, skip_special_tokens=False)

    assert "".join(map(hidden.push, ids)) == "ab"
    assert "".join(map(shown.push, ids)) == "a<|im_end|>b"


def test_the_first_space_separates_an_answer_from_its_prompt() -> None:
    """SentencePiece's first space belongs to a text that continues a prompt, and is dropped from one that does not."""
    tokenizer = sentencepiece()
    ids = tokenizer.encode("hello  world", add_special_tokens=False)

    continued, alone = Detokenizer(tokenizer), Detokenizer(tokenizer, continues_text=False)

    assert "".join(map(continued.push, ids)) == " hello  world"
    assert "".join(map(alone.push, ids)) == "hello  world"


def test_each_token_is_looked_up_once() -> None:
    """The cost of a token does not grow with the text: no earlier token is decoded again."""
    looked_up: list[int] = []

    def piece(token_id: int) -> bytes:
        looked_up.append(token_id)
        return b"\xc3" if token_id % 2 else b"\xa9"

    stub = SimpleNamespace(piece=piece, control_ids=frozenset(), strips_leading_space=False)
    detokenizer = Detokenizer(cast("Tokenizer", stub))

    for token_id in range(1, 2_001):
        detokenizer.push(token_id)

    assert looked_up == list(range(1, 2_001))
