"""A rendered chat prompt in which the template's control tokens and a user's look-alikes stay apart.

A user may write `<|im_end|>` in a message. If the rendered text were tokenized as it is, those characters would
become the control token, and the message could end its own turn and speak as the system. So before rendering,
every control token in what the user sent is replaced by one private-use character (planes 15 and 16), which a
template carries through like any other; after rendering, the character tells the tokenizer that here the characters
of the token are meant. Private-use characters that the user sent are carried the same way, so none can be forged.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from chairlift.core.errors import RequestError

_FIRST_MARK: Final = 0xF0000
_LAST_MARK: Final = 0x10FFFF
_MARKS: Final = f"[{chr(_FIRST_MARK)}-{chr(_LAST_MARK)}]"


@dataclass(frozen=True, slots=True)
class Prompt:
    """Text for the tokenizer, with marks where control tokens are meant as mere characters.

    Attributes:
        marked: the text, each look-alike one private-use character.
        literals: what each mark stands for, by code point.
    """

    marked: str
    literals: Mapping[int, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text as a reader sees it."""
        return self.marked.translate(self.literals) if self.literals else self.marked


@dataclass(frozen=True, slots=True)
class Covered:
    """A JSON value whose strings hold marks, and what each mark stands for."""

    value: Any
    literals: Mapping[int, str]


class Shield:
    """Replaces the control tokens in the strings of one request by marks."""

    def __init__(self, control_tokens: Iterable[str] = ()) -> None:
        longest_first = sorted(filter(None, control_tokens), key=len, reverse=True)
        self._pattern = re.compile("|".join([*map(re.escape, longest_first), _MARKS]))

    def cover(self, value: object) -> Covered:
        """A copy of a JSON value with every string in it covered, and what the marks stand for.

        Raises:
            RequestError: the value is nested too deeply, holds something that is no JSON, or has more distinct
                private-use characters than there are marks.
        """
        marks: dict[str, str] = {}
        unused = iter(range(_FIRST_MARK, _LAST_MARK + 1))
        try:
            covered = self._cover(value, marks, unused)
        except RecursionError as error:
            raise RequestError("the messages are nested too deeply for a chat template") from error
        return Covered(covered, {ord(mark): literal for literal, mark in marks.items()})

    def _cover(self, value: object, marks: dict[str, str], unused: Iterator[int]) -> object:
        if isinstance(value, str):
            return self._pattern.sub(lambda match: _mark(match[0], marks, unused), value)
        if isinstance(value, Mapping):
            return {self._cover(key, marks, unused): self._cover(item, marks, unused) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._cover(item, marks, unused) for item in value]
        if value is None or type(value) in {bool, int, float}:
            return value
        raise RequestError(f"the messages hold a {type(value).__name__}; a chat template takes plain JSON values")


def _mark(literal: str, marks: dict[str, str], unused: Iterator[int]) -> str:
    if literal not in marks:
        code = next(unused, None)
        if code is None:
            raise RequestError("the messages use all 131,072 private-use characters; leave one of them out")
        marks[literal] = chr(code)
    return marks[literal]
