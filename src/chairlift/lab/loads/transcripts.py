"""Lengths from recorded chats: how long what people wrote, and what they were answered, is for the target's tokenizer.

Two shapes are read, as JSON lines or as one JSON list: OpenAI's `{"messages": [{"role": ..., "content": ...}]}` and
ShareGPT's `{"conversations": [{"from": ..., "value": ...}]}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from chairlift.core.errors import ConfigError

CountTokens = Callable[[str], int]

_USERS: Final = frozenset({"user", "human"})
_ANSWERERS: Final = frozenset({"assistant", "gpt", "chatgpt", "bing", "bard"})
_BEFORE: Final = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a user adds, and the answer, in tokens."""

    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Transcripts:
    """Chats with at least one exchange."""

    chats: tuple[tuple[Exchange, ...], ...]
    sha256: str
    """Of the file's bytes."""
    left_out: int
    """Chats without an exchange."""


def read_transcripts(path: Path, count_tokens: CountTokens) -> Transcripts:
    """Read chats and count their tokens.

    A message before the first user's (a system prompt) counts with it. Several messages in a row by one side are one.

    Args:
        path: the file.
        count_tokens: of a text, without tokens that the tokenizer puts around it.

    Raises:
        ConfigError: the file cannot be read, or has no exchange in it.
    """
    try:
        data = path.read_bytes()
        chats = [_exchanges(messages, count_tokens) for messages in _chats(data.decode("utf-8-sig"), path)]
    except OSError as error:
        raise ConfigError(f"the transcripts {path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the transcripts {path} are no text: {error}.") from error
    kept = tuple(chat for chat in chats if chat)
    if not kept:
        raise ConfigError(f"the transcripts {path} have no exchange of a user and an assistant in {len(chats)} chats.")
    return Transcripts(kept, sha256(data).hexdigest(), len(chats) - len(kept))


def _chats(text: str, path: Path) -> Iterator[list[tuple[str, str]]]:
    """Role and text of each message, chat by chat."""
    if text.lstrip().startswith("["):
        for number, chat in enumerate(_json(text, f"{path}"), 1):
            yield _messages(chat, f"{path}, chat {number}")
        return
    for line, content in enumerate(text.splitlines(), 1):
        if content.strip() and not content.startswith("#"):
            yield _messages(_json(content, f"{path}, line {line}"), f"{path}, line {line}")


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where}: no JSON ({error}).") from error


def _messages(chat: Any, where: str) -> list[tuple[str, str]]:
    for name, role, content in (("messages", "role", "content"), ("conversations", "from", "value")):
        if isinstance(chat, dict) and isinstance(chat.get(name), list):
            try:
                return [(str(message[role]), _text(message[content])) for message in chat[name]]
            except (KeyError, TypeError) as error:
                raise ConfigError(f"{where}: a message is no object with {role!r} and {content!r}.") from error
    raise ConfigError(f"{where}: no chat: it has neither a list 'messages' nor a list 'conversations'.")


def _text(content: Any) -> str:
    """Of a message whose content is text, or parts of which some are."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return str(content)


def _exchanges(messages: list[tuple[str, str]], count_tokens: CountTokens) -> tuple[Exchange, ...]:
    exchanges: list[Exchange] = []
    asked, answered = 0, 0
    for role, text in messages:
        tokens = count_tokens(text)
        if role in _ANSWERERS:
            answered += tokens
            continue
        if answered and asked:
            exchanges.append(Exchange(asked, answered))
            asked = 0
        answered = 0
        asked += tokens if role in _USERS or (role in _BEFORE and not exchanges) else 0
    if asked and answered:
        exchanges.append(Exchange(asked, answered))
    return tuple(exchanges)
