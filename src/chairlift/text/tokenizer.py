"""Text to token ids and back, over the `tokenizers` library.

**Control tokens in text.** `<|im_end|>` in a string is either the control token or ten characters. Here it is
characters unless the caller says otherwise: `encode(text, parse_special=True)` for a prompt that its author wrote as
a template, and `encode_prompt` for a rendered chat, where the template's control tokens count and a user's do not
(see `chairlift.text.prompt`). vLLM and llama.cpp parse them everywhere.
"""

import re
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

import tokenizers

from chairlift.core.errors import RequestError
from chairlift.text import from_directory, from_gguf
from chairlift.text.pieces import Pieces
from chairlift.text.prompt import Prompt
from chairlift.text.special import SpecialTokens


class Tokenizer:
    """The tokenizer of one model. Safe to share between threads.

    Attributes:
        special: the ids with a role: bos, eos, and every id that ends an answer (`special.end_ids`).
        strings: the special tokens' strings by the names templates use (`bos_token`, `eos_token`, ...).
        control_tokens: string to id of every token that steers the model and is hidden from readers.
        control_ids: their ids: what `skip_special_tokens` skips.
        vocab_size: one more than the largest id. The model's output may be wider; its further ids decode to nothing.
        add_bos: whether `encode` puts the bos token before a prompt.
        strips_leading_space: whether a text's first space is the tokenizer's own (SentencePiece).
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, special: SpecialTokens, strings: Mapping[str, str] | None = None
    ) -> None:
        self.special = special
        self.strings: Mapping[str, str] = dict(strings or {})
        added = backend.get_added_tokens_decoder()
        self.control_tokens = {token.content: token_id for token_id, token in added.items() if token.special}
        self.control_ids = frozenset(self.control_tokens.values())
        self._backend = backend
        self._pieces = Pieces(backend)
        self.vocab_size = self._pieces.size
        self._flags = {token.content: (token.lstrip, token.rstrip) for token in added.values() if token.special}
        longest_first = sorted(filter(None, self.control_tokens), key=len, reverse=True)
        self._control = re.compile("(" + ("|".join(map(re.escape, longest_first)) or "(?!)") + ")")
        self._plain: dict[bool, tokenizers.Tokenizer] = {}
        self._lock = threading.Lock()
        framed = backend.encode("", add_special_tokens=True).ids
        self.add_bos = bool(framed) and framed[0] == special.bos_id

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object]) -> Self:
        """Build the tokenizer from a GGUF file's metadata (keys `tokenizer.ggml.*`).

        Raises:
            TokenizerError: the file holds none, one that cannot be reproduced, or a damaged one.
        """
        vocabulary = from_gguf.GgufVocabulary.read(metadata)
        special = from_gguf.special_tokens(vocabulary)
        roles = {
            "bos_token": special.bos_id,
            "eos_token": special.eos_id,
            "unk_token": special.unk_id,
            "pad_token": special.pad_id,
        }
        strings = {name: vocabulary.tokens[token_id] for name, token_id in roles.items() if token_id is not None}
        return cls(from_gguf.build(vocabulary), special, strings)

    @classmethod
    def from_directory(cls, folder: Path) -> Self:
        """Read the tokenizer of a Hugging Face directory.

        Raises:
            TokenizerError: tokenizer.json is missing, or a file is unreadable; the message says what to do.
        """
        backend = from_directory.load_backend(folder)
        named = from_directory.named_tokens(folder, backend)
        return cls(backend, named.special, named.strings)

    @property
    def strips_leading_space(self) -> bool:
        """Whether decoding takes one space off the front of a text."""
        return self._pieces.strips_leading_space

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of a text.

        Args:
            text: what a user wrote.
            add_special_tokens: put bos before (and eos after) it where the model wants that.
            parse_special: read control tokens in the text as control tokens, not as characters.

        Raises:
            RequestError: the text has half of a surrogate pair, which no UTF-8 can hold.
        """
        plain = not parse_special and self._control.search(text) is not None
        backend = self._without_control_tokens(at_start=True) if plain else self._backend
        return _encode(backend, text, add_special_tokens=add_special_tokens)

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        """Token ids of a rendered chat. Nothing is added: a template writes its own bos token.

        A message's look-alikes of control tokens become ordinary tokens; all else is what `encode` would give with
        `parse_special`.

        Raises:
            RequestError: the text has half of a surrogate pair.
        """
        if not prompt.literals:
            return _encode(self._backend, prompt.marked, add_special_tokens=False)
        ids: list[int] = []
        parts = self._control.split(prompt.marked)  # text, control token, text, ..., text
        for index, part in enumerate(parts):
            if index % 2:
                ids.append(self.control_tokens[part])
                continue
            before, after = parts[max(index - 1, 0)], parts[min(index + 1, len(parts) - 1)]
            section = self._strip_beside(part, before if index else "", after if index + 1 < len(parts) else "")
            if section:
                backend = self._without_control_tokens(at_start=index == 0)
                ids += _encode(backend, section.translate(prompt.literals), add_special_tokens=False)
        return ids

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True, continues_text: bool = False) -> str:
        """Text of token ids; U+FFFD stands for bytes that are no UTF-8.

        Args:
            ids: any ids; one without a token gives nothing.
            skip_special_tokens: leave control tokens out.
            continues_text: the ids follow a prompt, so a first space separates them from it and stays.
        """
        skipped = self.control_ids if skip_special_tokens else frozenset[int]()
        data = b"".join([self._pieces[token_id] for token_id in ids if token_id not in skipped])
        if self.strips_leading_space and not continues_text:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", "replace")

    def piece(self, token_id: int) -> bytes:
        """The bytes a token stands for, which may be part of a character; empty for an id without a token."""
        return self._pieces[token_id]

    def _strip_beside(self, section: str, before: str, after: str) -> str:
        """Drop the white space that a control token beside the section swallows."""
        if before and self._flags[before][1]:
            section = section.lstrip()
        if after and self._flags[after][0]:
            section = section.rstrip()
        return section

    def _without_control_tokens(self, *, at_start: bool) -> tokenizers.Tokenizer:
        """The tokenizer with control tokens as mere characters; away from the start it may add no first space."""
        first = at_start or not _spaces_only_the_start(self._backend)
        with self._lock:
            known = self._plain.get(first)
            if known is None:
                known = self._plain[first] = _plain_copy(self._backend, spaces_the_start=first)
            return known


def _encode(backend: tokenizers.Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
    try:
        return backend.encode(text, add_special_tokens=add_special_tokens).ids
    except TypeError as error:  # what the library raises for a str that is no UTF-8
        at = next((n for n, character in enumerate(text) if "\ud800" <= character <= "\udfff"), None)
        if at is None:
            raise
        raise RequestError(
            f"the text has half of a surrogate pair (U+{ord(text[at]):04X}) at character {at:,}: "
            "send the character as UTF-8, or both of its \\u escapes"
        ) from error


def _spaces_only_the_start(backend: tokenizers.Tokenizer) -> bool:
    """Whether the tokenizer puts its space before the whole text only, not after each control token."""
    cutter = backend.pre_tokenizer
    return cutter is not None and b'"prepend_scheme":"first"' in cutter.__getstate__()


def _plain_copy(backend: tokenizers.Tokenizer, *, spaces_the_start: bool) -> tokenizers.Tokenizer:
    """A second tokenizer over the same model (which is shared, not copied) that sees no control tokens."""
    copy = tokenizers.Tokenizer(backend.model)
    copy.normalizer = backend.normalizer
    copy.pre_tokenizer = backend.pre_tokenizer
    copy.post_processor = backend.post_processor
    added = backend.get_added_tokens_decoder()
    for token_id in sorted(added):  # in this order the library gives each the id it had
        (copy.add_special_tokens if added[token_id].special else copy.add_tokens)([added[token_id]])
    if not spaces_the_start and (cutter := copy.pre_tokenizer) is not None:
        state = cutter.__getstate__()
        cutter.__setstate__(state.replace(b'"prepend_scheme":"first"', b'"prepend_scheme":"never"'))
        copy.pre_tokenizer = cutter
    copy.encode_special_tokens = True
    return copy
