"""Small tokenizers for tests: the vocabularies of fixtures/tokenizer.json, and backends built by hand."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from chairlift.text.special import SpecialTokens
from chairlift.text.tokenizer import Tokenizer

FOLDER = Path(__file__).parent / "fixtures"
FIXTURE: dict[str, Any] = json.loads((FOLDER / "tokenizer.json").read_text(encoding="utf-8"))
WORDS: list[str] = json.loads((FOLDER / "words.json").read_text(encoding="utf-8"))
CONTROL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")


def byte_level_metadata(**changes: object) -> dict[str, object]:
    """GGUF metadata of a small byte-level vocabulary, as Qwen2 cuts text; None takes a key away."""
    return _changed(FIXTURE["byte-level"] | {"tokenizer.ggml.pre": "qwen2"}, changes)


def sentencepiece_metadata(**changes: object) -> dict[str, object]:
    """GGUF metadata of a small SentencePiece vocabulary; None takes a key away."""
    return _changed(FIXTURE["sentencepiece"], changes)


def _changed(metadata: dict[str, object], changes: dict[str, object]) -> dict[str, object]:
    merged = metadata | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return {key: value for key, value in merged.items() if value is not None}


@cache
def byte_level() -> Tokenizer:
    """A byte-level tokenizer; 907 tokens."""
    return Tokenizer.from_gguf(byte_level_metadata())


@cache
def sentencepiece() -> Tokenizer:
    """A SentencePiece tokenizer with byte fallback and a first space of its own; 1,000 tokens."""
    return Tokenizer.from_gguf(sentencepiece_metadata())


@cache
def space_only_at_start() -> Tokenizer:
    """A SentencePiece tokenizer that puts its space before the whole text only, as newer Llama-like models do."""
    alphabet = ["\u2581", "a", "b", "<", "/", "s", ">", "\u2581a", "\u2581b", "</s>", "<sep>"]
    merges = [("\u2581", "a"), ("\u2581", "b")]
    backend = tokenizers.Tokenizer(models.BPE({token: n for n, token in enumerate(alphabet)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    backend.add_special_tokens([AddedToken("</s>", normalized=False)])
    backend.add_special_tokens([AddedToken("<sep>", normalized=False, lstrip=True, rstrip=True)])
    return Tokenizer(backend, SpecialTokens(eos_id=9, end_ids=frozenset({9})), {"eos_token": "</s>"})


def texts() -> st.SearchStrategy[str]:
    """Texts that tokenizers disagree on: words of many scripts, runs of white space, look-alikes, any character."""
    piece = st.one_of(
        st.sampled_from(WORDS),
        st.sampled_from([" ", "  ", "\n", "\r\n", "\t", *CONTROL, "<|im_end", "</s>", "<unk>", "<tool_call>"]),
        st.text(st.characters(codec="utf-8"), max_size=4),
    )
    return st.lists(piece, max_size=12).map("".join)
