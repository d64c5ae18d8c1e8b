from pathlib import Path

import pytest

from chairlift.core.errors import TokenizerError
from chairlift.runners.openvino.gguf import GgufFile
from chairlift.text import pretokenizers
from chairlift.text.tokenizer import Tokenizer
from tests.text.vocabularies import FIXTURE, byte_level_metadata, sentencepiece_metadata

CASES = FIXTURE["cases"]
PRE_TOKENIZERS = ("default", "gpt-2", "smollm", "llama-bpe", "smaug-bpe", "qwen2")


def assert_matches_llama_cpp(tokenizer: Tokenizer, name: str) -> None:
    """Every kept text gives llama.cpp's ids, with control tokens as text and as control tokens."""
    case = CASES[name]
    for number, text in enumerate(FIXTURE["texts"]):
        assert tokenizer.encode(text, add_special_tokens=False) == case["plain"][number], text
        parsed = case["parsed"].get(str(number), case["plain"][number])
        assert tokenizer.encode(text, add_special_tokens=False, parse_special=True) == parsed, text
    assert tokenizer.encode("hello") == case["framed"]


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_each_pre_tokenizer_gives_the_ids_of_llama_cpp(name: str) -> None:
    """A byte-level vocabulary whose merges cross every kind of boundary is cut as llama.cpp cuts it."""
    assert_matches_llama_cpp(Tokenizer.from_gguf(byte_level_metadata(pre=name)), name)


def test_every_recipe_is_held_by_the_fixture() -> None:
    """No name is listed whose recipe the fixture does not try."""
    tried = {pretokenizers.RECIPES[name] for name in PRE_TOKENIZERS}

    assert set(pretokenizers.RECIPES.values()) == tried


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_gives_the_ids_of_llama_cpp(*, prefix: bool) -> None:
    """Scores merge as llama.cpp merges them, with byte fallback, and with or without a first space."""
    metadata = sentencepiece_metadata(add_space_prefix=None if prefix else False)

    assert_matches_llama_cpp(
        Tokenizer.from_gguf(metadata), "sentencepiece" if prefix else "sentencepiece without a prefix"
    )


@pytest.mark.model
def test_the_demo_model_gives_the_ids_of_llama_cpp(demo_model_path: Path) -> None:
    """SmolLM2's own vocabulary, from the file as it comes."""
    tokenizer = Tokenizer.from_gguf(GgufFile(demo_model_path).metadata)

    assert_matches_llama_cpp(tokenizer, "demo")
    assert tokenizer.special.bos_id == 1
    assert tokenizer.special.end_ids == {0, 2}
    assert tokenizer.vocab_size == 49_152
    assert not tokenizer.add_bos


def test_llama_3_begins_with_bos_unless_the_file_says_otherwise() -> None:
    """The pre-tokenizer's name implies bos; add_bos_token overrules it."""
    implied = Tokenizer.from_gguf(byte_level_metadata(pre="llama-bpe"))
    denied = Tokenizer.from_gguf(byte_level_metadata(pre="llama-bpe", add_bos_token=False))

    assert implied.add_bos
    assert implied.encode("a")[0] == implied.special.bos_id
    assert not denied.add_bos
    assert denied.special.bos_id not in denied.encode("a")


def test_eos_follows_a_prompt_when_the_file_asks() -> None:
    """add_eos_token puts eos after the text, beside or without bos."""
    both = Tokenizer.from_gguf(byte_level_metadata(add_bos_token=True, add_eos_token=True))
    alone = Tokenizer.from_gguf(byte_level_metadata(add_eos_token=True))
    bare = both.encode("a", add_special_tokens=False)

    assert both.encode("a") == [both.special.bos_id, *bare, both.special.eos_id]
    assert alone.encode("a") == [*bare, alone.special.eos_id]


def test_an_answer_ends_at_named_ids_and_at_known_control_tokens() -> None:
    """eos, eot and eom ids end an answer, and so do control tokens called <|endoftext|> and the like."""
    tokens = byte_level_metadata()["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    tokenizer = Tokenizer.from_gguf(byte_level_metadata(eot_token_id=5, eom_token_id=6))

    assert tokenizer.special.end_ids == {5, 6, tokens.index("<|im_end|>"), tokens.index("<|endoftext|>")}


def test_an_end_of_turn_written_as_user_text_is_a_control_token_all_the_same() -> None:
    """Converters have marked <|im_end|> as user-defined; it ends answers and is hidden from readers."""
    metadata = byte_level_metadata()
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list)
    assert isinstance(types, list)
    end = tokens.index("<|im_end|>")
    wrong = [4 if token_id == end else kind for token_id, kind in enumerate(types)]

    tokenizer = Tokenizer.from_gguf(byte_level_metadata(token_type=wrong))

    assert end in tokenizer.control_ids
    assert end in tokenizer.special.end_ids
    assert end not in tokenizer.encode("<|im_end|>")


def test_user_defined_tokens_are_found_in_any_text() -> None:
    """A user-defined token is text, so it is one token whether or not control tokens are read."""
    tokenizer = Tokenizer.from_gguf(byte_level_metadata())
    tokens = byte_level_metadata()["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    call = tokens.index("<tool_call>")

    assert call in tokenizer.encode("a<tool_call>b")
    assert call in tokenizer.encode("a<tool_call><|im_end|>b")
    assert tokenizer.decode([call]) == "<tool_call>"


def test_without_token_types_all_tokens_are_ordinary() -> None:
    """A file without tokenizer.ggml.token_type has no control tokens."""
    tokenizer = Tokenizer.from_gguf(byte_level_metadata(token_type=None))

    assert not tokenizer.control_ids


def test_strings_for_templates_come_from_the_named_ids() -> None:
    """Templates read bos_token and eos_token as strings."""
    tokenizer = Tokenizer.from_gguf(byte_level_metadata())

    assert tokenizer.strings == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({}, "tokenizer.ggml.model is missing.*tokenizer.json"),
        (byte_level_metadata(tokens=None), "tokenizer.ggml.tokens is missing.*tokenizer.json"),
        (byte_level_metadata(tokens=[]), "tokenizer.ggml.tokens is missing"),
        (byte_level_metadata(model="t5"), "'t5'.*gpt2.*llama.*tokenizer.json"),
        (byte_level_metadata(pre="poro-chat"), "'poro-chat'.*not been verified.*qwen2.*tokenizer.json"),
        (byte_level_metadata(pre=7), "tokenizer.ggml.pre is 7, not str"),
        (byte_level_metadata(merges=None), "merges is missing"),
        (byte_level_metadata(merges=["ab"]), "'ab', which is no pair"),
        (byte_level_metadata(merges=["qq zz"]), "do not fit together"),
        (byte_level_metadata(tokens=["a", "b", "a"], token_type=None), "'a' twice"),
        (byte_level_metadata(token_type=[1, 1]), "token_type has 2 entries for 90[0-9] tokens"),
        (byte_level_metadata(eos_token_id=99_999), "eos_token_id is 99999, but the file has 90[0-9] tokens"),
        (byte_level_metadata(add_bos_token=True, bos_token_id=None), "bos_token_id is missing"),
        (byte_level_metadata(add_bos_token="yes"), "add_bos_token is 'yes', not bool"),
        (sentencepiece_metadata(scores=None), "scores has no entries for 1,000 tokens"),
        (sentencepiece_metadata(scores=[0.0]), "scores has 1 entries"),
    ],
)
def test_a_tokenizer_that_cannot_be_built_says_why_and_what_to_do(metadata: dict[str, object], words: str) -> None:
    """Missing, foreign and damaged keys end in one sentence that names the key and the way out."""
    with pytest.raises(TokenizerError, match=words):
        Tokenizer.from_gguf(metadata)
