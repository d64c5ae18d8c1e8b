"""Prompts as text, for targets that take no token ids: exactly as long as asked under the target's tokenizer.

A text is words with single spaces, most of which are one token each; what is left over is settled by adding and
dropping words at the end and counting again. Where the tokenizer is unknown, lengths are a guess, and only the
target's usage can tell what was sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.prompts import Prompts, SafeIds
from chairlift.lab.loads.request import ScheduledRequest, Segment
from chairlift.lab.loads.words import WORDS

Role = Literal["user", "assistant"]
NO_TEXTS: Mapping[int, str] = {}

_LEAST_WORDS: Final = 64
"""With fewer words of one token each, all words are used and their mean length is reckoned with."""
_ATTEMPTS: Final = 60
_SMALL: Final = (".", ",", "a", "1", "!", "x", "-", "I", "\n")
"""What may add a single token where no word does."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Guess:
    """How a tokenizer that nobody has counts: tokens = overhead + tokens_per_word * words."""

    tokens_per_word: float = 1.0
    overhead: float = 0.0

    @classmethod
    def from_usage(cls, few: tuple[int, int], many: tuple[int, int]) -> Guess:
        """From two probes, each (words sent, prompt tokens by usage).

        Raises:
            ConfigError: more words were not more tokens.
        """
        words, tokens = many[0] - few[0], many[1] - few[1]
        if words < 1 or tokens < 1:
            raise ConfigError(f"{few[0]} words were {few[1]} tokens, {many[0]} were {many[1]}: that tells no length.")
        return cls(tokens / words, max(0.0, few[1] - few[0] * tokens / words))


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


Encode = Callable[[str], Sequence[int]]
"""Token ids of a text as the target counts it: with a bos token if it adds one."""
EncodeChat = Callable[[Sequence[Message]], Sequence[int]]
"""Token ids of a chat as the target counts it: with the template and its opening of the answer."""


class TextPrompts:
    """Prompts of one load as text, the same for the same seed, salt and tokenizer."""

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
            self._words, self._guess = _tried(encode)
        self._draws = Prompts(load, SafeIds(0, len(self._words)), salt)
        self._prefixes: dict[Segment, list[str]] = {}

    def text(self, request: ScheduledRequest, answers: Mapping[int, str] = NO_TEXTS) -> TextPrompt:
        """A text of request.prompt_tokens tokens.

        Args:
            request: whose prompt.
            answers: by request index, what earlier turns were really answered; drawn words where one is absent.

        Raises:
            ConfigError: no text of that length was found.
        """
        *earlier, last = self._parts(request, answers)
        before = [word for words in earlier for word in words]

        def render(words: Sequence[str]) -> str:
            return _joined([*before, *words])

        if self._encode is None:
            return TextPrompt(render(last), request.prompt_tokens, checked=False)
        encode = self._encode
        words = self._fitted(request.recipe[-1], last, lambda words: len(encode(render(words))), request.prompt_tokens)
        return TextPrompt(render(words), request.prompt_tokens, checked=True)

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
        parts = self._parts(request, answers, overhead=len(encode([Message("user", "")])) if encode else None)
        earlier: list[Message] = []
        pending: list[str] = []
        for segment, words in zip(request.recipe[:-1], parts, strict=False):
            if segment.stream == "answer":
                earlier += [Message("user", " ".join(pending)), Message("assistant", _joined(words))]
                pending = []
            else:
                pending += words

        def render(words: Sequence[str]) -> tuple[Message, ...]:
            return (*earlier, Message("user", _joined([*pending, *words])))

        if encode is None:
            return ChatPrompt(render(parts[-1]), request.prompt_tokens, checked=False)
        words = self._fitted(
            request.recipe[-1], parts[-1], lambda words: len(encode(render(words))), request.prompt_tokens
        )
        return ChatPrompt(render(words), request.prompt_tokens, checked=True)

    def _parts(
        self, request: ScheduledRequest, answers: Mapping[int, str], overhead: int | None = None
    ) -> list[list[str]]:
        """Words of each segment. What the target puts around a prompt is taken off its first segment."""
        parts = []
        for place, segment in enumerate(request.recipe):
            if segment.stream == "answer" and segment.number in answers:
                parts.append([answers[segment.number]])
            elif place == 0 and segment.stream.startswith("prefix") and self._encode is not None and overhead is None:
                parts.append(self._prefix(segment))
            else:
                around = (self._guess.overhead if overhead is None else overhead) if place == 0 else 0
                parts.append(self._written(segment, segment.tokens - around, first=place == 0))
        return parts

    def _prefix(self, segment: Segment) -> list[str]:
        """A shared prefix of exactly its length, made once: all that share it have the same words."""
        encode, known = self._encode, self._prefixes.get(segment)
        if known is None and encode is not None:
            words = self._written(segment, segment.tokens - self._guess.overhead, first=True)
            known = self._fitted(segment, words, lambda words: len(encode(_joined(words))), segment.tokens)
            self._prefixes[segment] = known
        return known or []

    def _written(self, segment: Segment, tokens: float, *, first: bool) -> list[str]:
        """As many words as should be so many tokens."""
        count = max(0, round(tokens / self._guess.tokens_per_word))
        return [self._words[number] for number in self._draws.stretch(replace(segment, tokens=count), first=first)]

    def _fitted(
        self, what: Segment, start: Sequence[str], count: Callable[[Sequence[str]], int], wanted: int
    ) -> list[str]:
        """The words, with some added or dropped at the end until the count is what is wanted."""
        words = list(start)
        more = itertools.cycle(self._written(replace(what, stream=f"more/{what.stream}"), 256, first=False))
        for _ in range(_ATTEMPTS):
            missing = wanted - count(words)
            if not missing:
                return words
            several = int(missing / self._guess.tokens_per_word)
            if missing < 0 and not words:
                break
            if missing < 0:
                del words[several or -1 :]
            elif several > 2:
                words += itertools.islice(more, several - 1)
            else:
                small = _best([next(more), *_SMALL], lambda piece: count([*words, piece]), wanted)  # noqa: B023
                words = [*words, small] if small else [*words[:-1], next(more)]
        raise ConfigError(
            f"no text of {wanted:,} tokens was found for {what.stream} {what.number}: with {len(words):,} words at its "
            f"end the prompt has {count(words):,}. Ask for longer prompts, or for token ids instead of text."
        )


def _best(pieces: Sequence[str], count: Callable[[str], int], wanted: int) -> str | None:
    """The piece that leads closest to what is wanted without passing it."""
    counts = {piece: count(piece) for piece in pieces}
    fitting = [piece for piece in pieces if counts[piece] <= wanted]
    return max(fitting, key=counts.__getitem__, default=None)


def _tried(encode: Encode) -> tuple[Sequence[str], Guess]:
    """The words that are one token each between others; all words, with their mean length, when those are few."""
    around = len(encode("the word"))
    costs = {word: len(encode(f"the {word} word")) - around for word in WORDS}
    single = [word for word, cost in costs.items() if cost == 1]
    overhead = float(len(encode("")))
    if len(single) >= _LEAST_WORDS:
        return single, Guess(1.0, overhead)
    return WORDS, Guess(max(1.0, sum(costs.values()) / len(costs)), overhead)


def _joined(words: Sequence[str]) -> str:
    return " ".join(words)
