"""Prompts as text, for targets that take no token ids: exactly as long as asked under the target's tokenizer.

A text is words with single spaces, most of which are one token each; what is left over is settled by adding and
dropping words at the end and counting again. Where the tokenizer is unknown, lengths are a guess, and only the
target's usage can tell what was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.fitting import Encode, Guess, fit, joined, try_words
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.prompts import Prompts, SafeIds
from chairlift.lab.loads.request import ScheduledRequest, Segment
from chairlift.lab.loads.words import WORDS

Role = Literal["user", "assistant"]
NO_TEXTS: Mapping[int, str] = {}


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A prompt in text."""

    text: str
    tokens: int
    """Its length: counted, or what is expected."""
    checked: bool
    """Counted with the target's tokenizer. Otherwise compare the target's usage with `tokens`."""


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A prompt in messages."""

    messages: tuple[Message, ...]
    tokens: int
    """Its length with the template's own tokens: counted, or what is expected."""
    checked: bool
    """Counted with the target's tokenizer and template. Otherwise compare the target's usage with `tokens`."""


EncodeChat = Callable[[Sequence[Message]], Sized]
"""Tokens of a chat as the target counts it: with the template and its opening of the answer."""


class TextPrompts:
    """Prompts of one load as text, the same for the same seed, salt and tokenizer.

    Each stretch of a recipe is fitted where it ends, so a turn's prompt begins with the very text of the one before.
    """

    def __init__(self, load: Load, encode: Encode | None, *, salt: str = "", guess: Guess | None = None) -> None:
        """Tries the words on the tokenizer.

        Args:
            load: its seed and nonce count.
            encode: the target's tokenizer; None when it is unknown.
            salt: as for `Prompts`.
            guess: how an unknown tokenizer counts; without one a word is taken for a token.
        """
        self._encode = encode
        self._guess = guess or Guess()
        self._words: Sequence[str] = WORDS
        if encode is not None:
            self._words, self._guess = try_words(encode)
        self._draws = Prompts(load, SafeIds(0, len(self._words)), salt)
        self._prefixes: dict[Segment, list[str]] = {}

    def text(self, request: ScheduledRequest, answers: Mapping[int, str] = NO_TEXTS) -> TextPrompt:
        """A text of request.prompt_tokens tokens.

        Args:
            request: whose prompt.
            answers: by request index, what earlier turns were really answered; drawn words where one is absent. Real
                answers that are longer than the load says may leave no room for what the user adds; then that is
                nothing, and the prompt is as long as `tokens` says.

        Raises:
            ConfigError: no text of that length was found.
        """
        encode, wanted = self._encode, 0
        pieces: list[str] = []
        for place, segment in enumerate(request.recipe):
            wanted += segment.tokens
            if segment.stream == "answer" and segment.number in answers:
                pieces = [*pieces, answers[segment.number]]
                continue
            own = self._prefixes.get(segment) if place == 0 else None
            if own is None:
                own = self._written(segment, first=place == 0, around=self._guess.overhead)
                if encode is not None and (segment.stream != "block" or segment is request.recipe[-1]):
                    own = self._fitted(segment, own, partial(_count, encode, pieces), wanted, strict=not answers)
            if place == 0 and segment.stream.startswith("prefix"):
                self._prefixes[segment] = own
            pieces = [*pieces, *own]
        text = joined(pieces)
        if encode is None:
            return TextPrompt(text, request.prompt_tokens, checked=False)
        return TextPrompt(text, len(encode(text)), checked=True)

    def messages(
        self, request: ScheduledRequest, encode: EncodeChat | None, answers: Mapping[int, str] = NO_TEXTS
    ) -> ChatPrompt:
        """A chat of request.prompt_tokens tokens, the template's own included; earlier turns are earlier messages.

        Args:
            request: whose prompt.
            encode: the target's template and tokenizer; None when they are unknown.
            answers: as for `text`.

        Raises:
            ConfigError: no chat of that length was found.
        """
        around = len(encode([Message("user", "")])) if encode is not None else self._guess.overhead
        said: list[Message] = []
        pieces: list[str] = []
        wanted = 0
        for place, segment in enumerate(request.recipe):
            wanted += segment.tokens
            own = self._written(segment, first=place == 0, around=around)
            if segment.stream == "answer":
                answer = answers.get(segment.number, joined(own))
                said = [*said, Message("user", joined(pieces)), Message("assistant", answer)]
                pieces = []
                continue
            if encode is not None and (segment.stream == "own" or segment is request.recipe[-1]):
                own = self._fitted(segment, own, partial(_count_chat, encode, said, pieces), wanted, strict=not answers)
            pieces = [*pieces, *own]
        chat = (*said, Message("user", joined(pieces)))
        if encode is None:
            return ChatPrompt(chat, request.prompt_tokens, checked=False)
        return ChatPrompt(chat, len(encode(chat)), checked=True)

    def _written(self, segment: Segment, *, first: bool, around: float = 0) -> list[str]:
        """As many words as should be the segment's tokens; a prompt's first has what is around the prompt as well."""
        tokens = segment.tokens - around if first else segment.tokens
        count = max(0, round(tokens / self._guess.tokens_per_word))
        picked = self._draws.stretch(replace(segment, tokens=count), first=first)
        return [f" {self._words[number]}" for number in picked]

    def _fitted(
        self, what: Segment, words: list[str], count: Callable[[list[str]], int], wanted: int, *, strict: bool
    ) -> list[str]:
        """The words, fitted.

        Raises:
            ConfigError: no fitting ones were found, and they are a must.
        """
        more = self._written(Segment(f"more/{what.stream}", what.number, 256), first=False)
        pieces = fit(words, more, count, wanted, self._guess.tokens_per_word)
        if strict and (reached := count(pieces)) != wanted:
            raise ConfigError(
                f"no text of {wanted:,} tokens was found for {what.stream} {what.number}: with {len(pieces):,} words "
                f"of its own it has {reached:,}. Ask for longer prompts, or for token ids instead of text."
            )
        return pieces


def _count(encode: Encode, before: list[str], own: list[str]) -> int:
    return len(encode(joined([*before, *own])))


def _count_chat(encode: EncodeChat, said: list[Message], before: list[str], own: list[str]) -> int:
    return len(encode([*said, Message("user", joined([*before, *own]))]))
