"""A tokenizer from what a GGUF file says about it: the `tokenizer.ggml.*` keys of its metadata.

Byte-level BPE (`gpt2`) is built from tokens and merges. SentencePiece (`llama`) stores scores in place of merges:
of all neighbours that together are a token, the pair with the highest score merges first. That equals BPE whose
merges are all splits of each token into two tokens, in order of falling score. Both were compared with llama.cpp.

Keys and token types: the GGUF specification of the ggml project.
"""

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, processors

from chairlift.core.errors import TokenizerError
from chairlift.text import pretokenizers
from chairlift.text.special import SpecialTokens

_KEY: Final = "tokenizer.ggml."
_SPACE: Final = "\u2581"
_WAY_OUT: Final = "Use a Hugging Face directory of the model that has tokenizer.json"

END_OF_TURN: Final = frozenset(
    {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<|endoftext|>",
        "<|end|>",
        "<end_of_turn>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
        "<EOT>",
        "</s>",
    }
)
"""Control tokens that end an answer by their name, as llama.cpp reads them: files often name only one of two ends."""

T = TypeVar("T")


class TokenType(enum.IntEnum):
    """What `tokenizer.ggml.token_type` says of a token."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """The tokenizer keys of one file, checked against each other.

    Attributes:
        model: `gpt2`, `llama`, or a kind that cannot be built.
        tokens: their strings; the index is the id.
        types: one for each token.
        metadata: everything the file says, for the keys read later.
    """

    model: str
    tokens: Sequence[str]
    types: Sequence[int]
    metadata: Mapping[str, object]

    @classmethod
    def read(cls, metadata: Mapping[str, object]) -> Self:
        """Read the keys every tokenizer has.

        Raises:
            TokenizerError: they are missing, or do not belong together.
        """
        model = metadata.get(f"{_KEY}model")
        tokens = metadata.get(f"{_KEY}tokens")
        if not isinstance(model, str) or not isinstance(tokens, Sequence) or not tokens:
            missing = f"{_KEY}model" if not isinstance(model, str) else f"{_KEY}tokens"
            raise TokenizerError(f"the GGUF file holds no tokenizer: {missing} is missing. {_WAY_OUT}")
        if len(set(tokens)) != len(tokens):
            twice, _ = Counter(tokens).most_common(1)[0]
            raise TokenizerError(f"{_KEY}tokens has {twice!r} twice: the file is damaged. {_WAY_OUT}")
        ordinary = [int(TokenType.NORMAL)] * len(tokens)
        types = _column(metadata, "token_type", len(tokens)) if f"{_KEY}token_type" in metadata else ordinary
        return cls(model, tokens, [_corrected(*entry) for entry in zip(tokens, types, strict=True)], metadata)

    def scalar(self, key: str, kind: type[T]) -> T | None:
        """The value of `tokenizer.ggml.KEY`, or None where the file does not say.

        Raises:
            TokenizerError: the value is of another type.
        """
        value = self.metadata.get(_KEY + key)
        if value is None or isinstance(value, kind):
            return value
        raise TokenizerError(f"{_KEY}{key} is {value!r}, not {kind.__name__}: the file is damaged. {_WAY_OUT}")

    def token_id(self, key: str) -> int | None:
        """The id under `tokenizer.ggml.KEY`, or None where the file names none.

        Raises:
            TokenizerError: there is no such token.
        """
        token_id = self.scalar(key, int)
        if token_id is not None and not 0 <= token_id < len(self.tokens):
            raise TokenizerError(f"{_KEY}{key} is {token_id}, but the file has {len(self.tokens):,} tokens. {_WAY_OUT}")
        return token_id


def _corrected(token: str, kind: int) -> int:
    """Converters have written ends of turn as user-defined text; they are control tokens whatever the file says."""
    return TokenType.CONTROL if kind == TokenType.USER_DEFINED and token in END_OF_TURN else kind


def _column(metadata: Mapping[str, object], key: str, count: int) -> Sequence[Any]:
    """One value for each token.

    Raises:
        TokenizerError: the key is missing, or its length is not that of the tokens.
    """
    values = metadata.get(_KEY + key)
    if not isinstance(values, Sequence) or len(values) != count:
        found = f"{len(values):,}" if isinstance(values, Sequence) else "no"
        raise TokenizerError(f"{_KEY}{key} has {found} entries for {count:,} tokens: the file is damaged. {_WAY_OUT}")
    return values


def build(vocabulary: GgufVocabulary) -> tokenizers.Tokenizer:
    """The tokenizer a file describes.

    Raises:
        TokenizerError: its kind or its pre-tokenizer cannot be reproduced, or its parts contradict each other.
    """
    if vocabulary.model == "gpt2":
        backend, add_bos = _byte_level(vocabulary)
    elif vocabulary.model == "llama":
        backend, add_bos = _sentencepiece(vocabulary)
    else:
        raise TokenizerError(
            f"the GGUF file's tokenizer is of kind {vocabulary.model!r}; gpt2 (byte-level BPE) and llama "
            f"(SentencePiece) can be built. {_WAY_OUT}"
        )
    control = (TokenType.CONTROL, TokenType.UNKNOWN)
    added = list(zip(vocabulary.tokens, vocabulary.types, strict=True))
    backend.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token, kind in added if kind in control]
    )
    backend.add_tokens([AddedToken(token, normalized=False) for token, kind in added if kind == TokenType.USER_DEFINED])
    _frame(backend, vocabulary, add_bos=add_bos)
    return backend


def special_tokens(vocabulary: GgufVocabulary) -> SpecialTokens:
    """The tokens with a role: what the file names, and the control tokens that end an answer by their name."""
    ends = {vocabulary.token_id(key) for key in ("eos_token_id", "eot_token_id", "eom_token_id")}
    for token_id, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True)):
        if kind == TokenType.CONTROL and token in END_OF_TURN:
            ends.add(token_id)
    return SpecialTokens(
        bos_id=vocabulary.token_id("bos_token_id"),
        eos_id=vocabulary.token_id("eos_token_id"),
        unk_id=vocabulary.token_id("unknown_token_id"),
        pad_id=vocabulary.token_id("padding_token_id"),
        end_ids=frozenset(token_id for token_id in ends if token_id is not None),
    )


def _byte_level(vocabulary: GgufVocabulary) -> tuple[tokenizers.Tokenizer, bool]:
    name = vocabulary.scalar("pre", str) or "default"
    recipe = pretokenizers.RECIPES.get(name)
    if recipe is None:
        raise TokenizerError(
            f"the GGUF file's pre-tokenizer is {name!r}, which has not been verified; these have: "
            f"{', '.join(sorted(pretokenizers.RECIPES))}. {_WAY_OUT}"
        )
    merges = vocabulary.metadata.get(f"{_KEY}merges")
    if not isinstance(merges, Sequence):
        raise TokenizerError(f"{_KEY}merges is missing, and byte-level BPE needs it. {_WAY_OUT}")
    pairs = [_pair(merge) for merge in merges]
    backend = _bpe(vocabulary, pairs, ignore_merges=recipe.ignore_merges)
    backend.pre_tokenizer = pretokenizers.build(recipe)
    backend.decoder = decoders.ByteLevel()
    return backend, recipe.add_bos


def _pair(merge: str) -> tuple[str, str]:
    """Split a merge at its first space that is not its first character (a token may begin with a space)."""
    cut = merge.find(" ", 1)
    if cut < 0:
        raise TokenizerError(f"{_KEY}merges has {merge!r}, which is no pair: the file is damaged. {_WAY_OUT}")
    return merge[:cut], merge[cut + 1 :]


def _sentencepiece(vocabulary: GgufVocabulary) -> tuple[tokenizers.Tokenizer, bool]:
    scores: Sequence[float] = _column(vocabulary.metadata, "scores", len(vocabulary.tokens))
    mergeable = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)
    parts = {token for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True) if kind in mergeable}
    ranked = [
        (-score, token[:cut], token[cut:])
        for token, score, kind in zip(vocabulary.tokens, scores, vocabulary.types, strict=True)
        if kind == TokenType.NORMAL
        for cut in range(1, len(token))
        if token[:cut] in parts and token[cut:] in parts
    ]
    ranked.sort(key=lambda merge: merge[0])
    unknown = vocabulary.token_id("unknown_token_id")
    backend = _bpe(
        vocabulary,
        [(left, right) for _, left, right in ranked],
        unk_token=None if unknown is None else vocabulary.tokens[unknown],
    )
    escape = normalizers.Replace(" ", _SPACE)
    prefixed = vocabulary.scalar("add_space_prefix", bool) is not False
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), escape] if prefixed else [escape])
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefixed else steps)
    return backend, True


def _bpe(
    vocabulary: GgufVocabulary,
    merges: list[tuple[str, str]],
    *,
    ignore_merges: bool = False,
    unk_token: str | None = None,
) -> tokenizers.Tokenizer:
    ids = {token: token_id for token_id, token in enumerate(vocabulary.tokens)}
    fallback = vocabulary.model == "llama"
    try:
        return tokenizers.Tokenizer(
            models.BPE(
                ids,
                merges,
                ignore_merges=ignore_merges,
                byte_fallback=fallback,
                fuse_unk=fallback,
                unk_token=unk_token,
            )
        )
    except Exception as error:  # the library raises the bare class
        raise TokenizerError(f"the GGUF file's tokens and merges do not fit together: {error}. {_WAY_OUT}") from error


def _frame(backend: tokenizers.Tokenizer, vocabulary: GgufVocabulary, *, add_bos: bool) -> None:
    """Have the tokenizer put bos before and eos after a prompt, as the file asks."""
    said = {key: vocabulary.scalar(f"add_{key}_token", bool) for key in ("bos", "eos")}
    wanted = {"bos": add_bos if said["bos"] is None else said["bos"], "eos": bool(said["eos"])}
    frame: list[tuple[str, int]] = []
    for key in (key for key, asked in wanted.items() if asked):
        token_id = vocabulary.token_id(f"{key}_token_id")
        if token_id is None:
            raise TokenizerError(
                f"prompts must begin or end with the {key} token, but {_KEY}{key}_token_id is missing. {_WAY_OUT}"
            )
        frame.append((vocabulary.tokens[token_id], token_id))
    if frame:
        before = [frame[0][0]] if wanted["bos"] else []
        after = [frame[-1][0]] if wanted["eos"] else []
        backend.post_processor = processors.TemplateProcessing(single=[*before, "$A", *after], special_tokens=frame)
