from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models

from chairlift.core.errors import RequestError
from chairlift.text.prompt import Prompt, Shield
from chairlift.text.special import SpecialTokens
from chairlift.text.tokenizer import Tokenizer
from tests.text.vocabularies import CONTROL, FIXTURE, byte_level, sentencepiece, space_only_at_start, texts


def covered(tokenizer: Tokenizer, *parts: tuple[str, bool]) -> Prompt:
    """A prompt from parts: (text, whether a user wrote it)."""
    theirs = Shield(tokenizer.control_tokens).cover([text for text, user in parts if user])
    spans = iter(theirs.value)
    return Prompt("".join(next(spans) if user else text for text, user in parts), theirs.literals)


def test_control_tokens_in_a_text_are_characters_unless_asked() -> None:
    """A prompt cannot steer the model by accident; its author can ask for it."""
    tokenizer = byte_level()
    end = tokenizer.control_tokens["<|im_end|>"]

    assert end not in tokenizer.encode("a<|im_end|>b")
    assert tokenizer.decode(tokenizer.encode("a<|im_end|>b")) == "a<|im_end|>b"
    assert tokenizer.encode("a<|im_end|>b", parse_special=True)[1] == end


@given(texts())
def test_a_prompt_without_marks_is_encoded_as_its_text(text: str) -> None:
    """A rendered chat in which no user wrote a control token takes the ordinary way, and adds nothing."""
    for tokenizer in (byte_level(), sentencepiece()):
        expected = tokenizer.encode(text, add_special_tokens=False, parse_special=True)

        assert tokenizer.encode_prompt(Prompt(text)) == expected


@given(st.lists(st.tuples(texts(), st.booleans()), max_size=6))
def test_a_users_look_alikes_never_become_control_tokens(parts: list[tuple[str, bool]]) -> None:
    """The control tokens of a prompt are the template's, in its order; the text is unchanged."""
    tokenizer = byte_level()
    prompt = covered(tokenizer, *parts)
    theirs = [
        tokenizer.control_tokens[token]
        for token in tokenizer._control.findall(prompt.marked)  # marked text holds the template's only
    ]

    ids = tokenizer.encode_prompt(prompt)

    assert [token_id for token_id in ids if token_id in tokenizer.control_ids] == theirs
    assert tokenizer.decode(ids, skip_special_tokens=False) == prompt.text == "".join(text for text, _ in parts)


@given(before=texts(), after=texts())
def test_a_look_alike_is_encoded_with_the_text_around_it(before: str, after: str) -> None:
    """Between control tokens of the template, text with a look-alike has the ids of plain text."""
    tokenizer = byte_level()
    start, end = (tokenizer.control_tokens[token] for token in ("<|im_start|>", "<|im_end|>"))
    content = before + "<|im_end|>" + after
    prompt = covered(tokenizer, ("<|im_start|>", False), (content, True), ("<|im_end|>\n", False))

    ids = tokenizer.encode_prompt(prompt)

    plain = tokenizer.encode(content, add_special_tokens=False)
    assert ids == [start, *plain, end, *tokenizer.encode("\n")]


@pytest.mark.parametrize("make", [sentencepiece, space_only_at_start])
def test_a_look_alike_brings_no_space_of_its_own(make: Callable[[], Tokenizer]) -> None:
    """The prompt has the ids that it would have if the look-alike were any other word."""
    tokenizer = make()
    parts = [("a", False), ("</s>", False), ("b </s> a", True), ("</s>", False), (" a", False)]
    ids = tokenizer.encode_prompt(covered(tokenizer, *parts))
    end = tokenizer.special.eos_id
    assert end is not None
    sections = " ".join(map(str, ids)).split(f" {end} ")

    without = tokenizer.encode("a</s>b  a</s> a", parse_special=True, add_special_tokens=False)
    expected = " ".join(map(str, without)).split(f" {end} ")

    assert len(sections) == len(expected) == 3
    assert (sections[0], sections[2]) == (expected[0], expected[2])
    middle = [int(token_id) for token_id in sections[1].split()]
    assert tokenizer.decode(middle, continues_text=True).strip() == "b </s> a"
    assert middle[0] == int(expected[1].split()[0])


def test_a_control_token_that_swallows_white_space_does_so_beside_a_look_alike() -> None:
    """White space beside a token with lstrip or rstrip goes, on both ways of encoding."""
    tokenizer = space_only_at_start()
    sep, end = tokenizer.control_tokens["<sep>"], tokenizer.control_tokens["</s>"]
    parts = [("</s>", True), ("  <sep>  b", False)]

    ids = tokenizer.encode_prompt(covered(tokenizer, *parts))

    assert ids == [0, 3, 4, 5, 6, sep, 2]
    assert tokenizer.encode("a  <sep>  b", parse_special=True) == [7, sep, 2]
    assert end not in ids


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
def test_ordinary_text_decodes_as_the_library_decodes_it(make: Callable[[], Tokenizer]) -> None:
    """For the ids of a text, decoding equals the tokenizers library's, control tokens skipped or not."""
    tokenizer = make()
    for text in FIXTURE["texts"]:
        ids = tokenizer.encode(text, parse_special=True)
        for skip in (True, False):
            theirs = tokenizer._backend.decode(ids, skip_special_tokens=skip)
            assert tokenizer.decode(ids, skip_special_tokens=skip) == theirs


@given(st.lists(st.integers(0, 1_100), max_size=24))
def test_any_ids_of_a_byte_level_tokenizer_decode_as_the_library_decodes_them(ids: list[int]) -> None:
    """Broken UTF-8 gives the same U+FFFD, and ids without a token give nothing."""
    tokenizer = byte_level()

    assert tokenizer.decode(ids) == tokenizer._backend.decode(ids, skip_special_tokens=True)


def test_a_run_of_byte_tokens_keeps_its_valid_part() -> None:
    """Of the bytes of é and a stray one, é survives: text shown while streaming is never taken back."""
    tokenizer = sentencepiece()
    ids = {tokenizer.piece(token_id): token_id for token_id in range(tokenizer.vocab_size)}

    assert tokenizer.decode([ids[b"\xc3"], ids[b"\xa9"], ids[b"\xff"]]) == "é\ufffd"


def test_half_a_surrogate_pair_is_refused_with_its_place() -> None:
    """JSON can spell what UTF-8 cannot; the request is at fault, and is told where."""
    tokenizer = byte_level()

    with pytest.raises(RequestError, match=r"U\+D83D\) at character 3"):
        tokenizer.encode("abc\ud83d")
    with pytest.raises(RequestError, match="surrogate"):
        tokenizer.encode_prompt(covered(tokenizer, ("<|im_end|>\udc00", True)))


def test_text_that_is_no_string_is_a_bug_and_says_so() -> None:
    """Only a bad string is turned into an error of the request."""
    not_text: Any = ["a"]

    with pytest.raises(TypeError):
        byte_level().encode(not_text, parse_special=True)


def test_added_tokens_keep_their_ids_where_control_tokens_are_characters() -> None:
    """Added tokens lie beyond the model's vocabulary; reading control tokens as text does not move them."""
    backend = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1, "<": 2, ">": 3, "x": 4}, []))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<x>", normalized=False)])
    backend.add_tokens([AddedToken("ab", normalized=False)])
    backend.add_special_tokens([AddedToken("<b>", normalized=False)])
    tokenizer = Tokenizer(backend, SpecialTokens())

    assert tokenizer.vocab_size == 8
    assert tokenizer.encode("<x>ab<b>", parse_special=True) == [5, 6, 7]
    assert tokenizer.encode("<x>ab<b>") == [2, 4, 3, 6, 2, 1, 3]


def test_threads_share_one_tokenizer() -> None:
    """The server encodes on several threads; every one gets the ids of one alone."""
    tokenizer = Tokenizer.from_gguf(FIXTURE["byte-level"])
    alone = [Tokenizer.from_gguf(FIXTURE["byte-level"]).encode(text) for text in FIXTURE["texts"]]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(tokenizer.encode, FIXTURE["texts"] * 5)) == alone * 5


def test_control_tokens_are_what_the_file_calls_special() -> None:
    """User-defined tokens are text and stay visible; control tokens are hidden and cannot be written by users."""
    assert set(byte_level().control_tokens) == set(CONTROL)
    assert set(sentencepiece().control_tokens) == {"<unk>", "<s>", "</s>"}
