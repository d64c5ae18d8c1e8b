"""Making a text exactly so many tokens long under a tokenizer that can only be asked to count."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import Final

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.words import WORDS

Encode = Callable[[str], Sized]
"""Tokens of a text as the target counts it: with a bos token if it adds one."""

LEAST_WORDS: Final = 64
"""With fewer words of one token each, all words are used and their mean length is reckoned with."""
_ATTEMPTS: Final = 60
_SMALL: Final = (".", ",", "!", "1", "x", " a", " I", "\n")
"""What may add a single token where no word does."""


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


def joined(pieces: Iterable[str]) -> str:
    """The text of pieces that bring the space before them along."""
    return "".join(pieces).removeprefix(" ")


def try_words(encode: Encode) -> tuple[Sequence[str], Guess]:
    """The words that are one token each between others; all words, with their mean length, when those are few."""
    around = len(encode("the word"))
    costs = {word: len(encode(f"the {word} word")) - around for word in WORDS}
    single = [word for word, cost in costs.items() if cost == 1]
    overhead = float(len(encode("")))
    if len(single) >= LEAST_WORDS:
        return single, Guess(1.0, overhead)
    return WORDS, Guess(max(1.0, sum(costs.values()) / len(costs)), overhead)


def fit(
    start: Sequence[str], more: Iterable[str], count: Callable[[list[str]], int], wanted: int, tokens_per_word: float
) -> list[str]:
    """The pieces, with some added or dropped at the end until the count is what is wanted.

    Args:
        start: what to begin with.
        more: words to add, taken in turn.
        count: tokens of the whole text that the pieces end.
        wanted: what it should be.
        tokens_per_word: about how much a word adds.

    Returns:
        Pieces whose count is what is wanted; or, if none were found, what was tried last: look at the count.
    """
    pieces, words = list(start), itertools.cycle(more)
    for _ in range(_ATTEMPTS):
        missing = wanted - count(pieces)
        if not missing or (missing < 0 and not pieces):
            break
        several = int(missing / tokens_per_word)
        if missing < 0:
            del pieces[several or -1 :]
        elif several > 2:
            pieces += itertools.islice(words, several - 1)
        else:
            counts = {piece: count([*pieces, piece]) for piece in (next(words), *_SMALL)}
            fitting = [piece for piece in counts if counts[piece] <= wanted]
            pieces = [*pieces, max(fitting, key=counts.__getitem__)] if fitting else [*pieces[:-1], next(words)]
    return pieces
