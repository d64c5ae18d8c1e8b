"""What bytes each token stands for.

Text is defined here once for the whole package: **the text of a token sequence is the UTF-8 decoding of its tokens'
bytes, joined, with U+FFFD for what is not UTF-8** (the WHATWG rule, which CPython and Rust share). Decoding all at once
and decoding token by token then agree by construction, and both take time proportional to the tokens.

Two alphabets are known. *Byte-level* tokens spell bytes with GPT-2's printable characters. *SentencePiece* tokens
are text with U+2581 for a space, and `<0xE2>` for a byte that no token covers.

Where this differs from the `tokenizers` library, deliberately: a run of SentencePiece byte tokens that is partly
valid keeps its valid part (the library replaces every byte of the run), and added tokens are their own text.
"""

import enum
import json
import re
from typing import Any, Final

import tokenizers
from tokenizers import decoders

from chairlift.core.errors import TokenizerError

_SPACE: Final = "\u2581"
_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Alphabet(enum.Enum):
    """How a tokenizer spells bytes."""

    BYTE_LEVEL = "byte-level"
    SENTENCEPIECE = "SentencePiece"


def byte_level_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 characters stand for themselves, the other 68 bytes for U+0100 onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in set(printable))
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


class Pieces:
    """The bytes of each token id of one tokenizer, looked up once and kept.

    Attributes:
        size: one more than the largest id.
        alphabet: how ordinary tokens spell their bytes.
        strips_leading_space: the tokenizer puts a space before text, so decoding takes one off the front.

    Raises:
        TokenizerError: the tokenizer decodes in a way this package does not know (WordPiece, CTC and the like).
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._added = {token_id: token.content for token_id, token in backend.get_added_tokens_decoder().items()}
        self.size = 1 + max(backend.get_vocab(with_added_tokens=True).values(), default=-1)
        self._bytes_of: dict[int, bytes] = {}
        self._byte_level = byte_level_alphabet()
        self.alphabet, self.strips_leading_space = _read_decoder(backend.decoder)

    def __getitem__(self, token_id: int) -> bytes:
        """The bytes of a token; empty for an id without a token, such as a padded row of the output matrix."""
        known = self._bytes_of.get(token_id)
        if known is not None:
            return known
        if not 0 <= token_id < self.size:
            return b""
        known = self._bytes_of[token_id] = self._spell(token_id)
        return known

    def _spell(self, token_id: int) -> bytes:
        added = self._added.get(token_id)
        if added is not None:
            return (added.replace(_SPACE, " ") if self.alphabet is Alphabet.SENTENCEPIECE else added).encode()
        token = self._backend.id_to_token(token_id)
        if token is None:
            return b""
        if self.alphabet is Alphabet.SENTENCEPIECE:
            if byte := _BYTE_TOKEN.fullmatch(token):
                return bytes((int(byte[1], 16),))
            return token.replace(_SPACE, " ").encode()
        try:
            return bytes(self._byte_level[character] for character in token)
        except KeyError:  # a token outside the alphabet stands for its own text
            return token.encode()


def _read_decoder(decoder: decoders.Decoder | None) -> tuple[Alphabet, bool]:
    """Recognise a decoder: its alphabet, and whether it takes a space off the front."""
    if decoder is None:
        raise TokenizerError(_unknown("no decoder"))
    state: dict[str, Any] = json.loads(decoder.__getstate__())
    steps = state["decoders"] if state["type"] == "Sequence" else [state]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return Alphabet.BYTE_LEVEL, False
    for step in steps:
        if step["type"] == "Metaspace" and step["replacement"] == _SPACE:
            return Alphabet.SENTENCEPIECE, step["prepend_scheme"] != "never"
    replaces = any(
        step["type"] == "Replace" and step["pattern"] == {"String": _SPACE} and step["content"] == " " for step in steps
    )
    if replaces and set(kinds) <= {"Replace", "ByteFallback", "Fuse", "Strip"}:
        strips = any(step["type"] == "Strip" and step["content"] == " " and step["start"] > 0 for step in steps)
        return Alphabet.SENTENCEPIECE, strips
    raise TokenizerError(_unknown(" + ".join(kinds)))


def _unknown(found: str) -> str:
    return (
        f"the tokenizer decodes with {found}; byte-level and SentencePiece decoders are supported. "
        "Models of the Llama and Qwen2 families have one of them: check that tokenizer.json belongs to the model"
    )
