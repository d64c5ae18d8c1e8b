"""What one event of an answer says, in the dialects of the OpenAI API that servers speak.

Read from each server's own documentation or source: `choices[].text` (completions); `choices[].delta` or `.message`
with `content`, `reasoning_content` (vLLM up to 0.11, SGLang, llama.cpp, TensorRT-LLM), `reasoning` (vLLM, Ollama),
`tool_calls`, `refusal` (chat); `choices[].token_ids` (vLLM and Chairlift, with return_token_ids); `usage` at the end or
in every chunk (continuous_usage_stats); `timings.predicted_n` in every chunk (llama.cpp, with timings_per_token).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from chairlift.core.request import TokenId
from chairlift.lab.client.sse import ServerSentEvent

DONE: Final = b"[DONE]"

_decode: Final = json.JSONDecoder().decode
"""Without the look for other encodings that json.loads takes at bytes: a third of its time."""

_REASONING: Final = ("reasoning_content", "reasoning")
_CONTENT: Final = ("content", "refusal")
_LONGEST_MESSAGE: Final = 500


class Delta(NamedTuple):
    """One event, read."""

    choices: bool = False
    """Whether it is about the answer; usage alone is not."""
    content: bool = False
    """Whether it carries generated content that can be seen: text, reasoning, a tool call, or token ids."""
    text: str = ""
    """The answer's text in it, reasoning left out."""
    token_ids: tuple[TokenId, ...] | None = None
    """The ids of its tokens, where the target sends them."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    """Generated so far, this event included."""
    finish_reason: str | None = None
    error: str | None = None
    """What the target says went wrong."""


class NotAnAnswer(ValueError):
    """The event is not one of this API; the message shows it."""


def read_event(event: ServerSentEvent) -> Delta:
    """Read one event that is not [DONE].

    Raises:
        NotAnAnswer: it is no JSON object, or has neither choices nor usage nor an error.
    """
    try:
        body = _decode(event.data.decode("utf-8"))
    except ValueError as error:  # both wrong JSON and wrong UTF-8
        if event.name == b"error":
            return Delta(error=_shortened(event.data.decode("utf-8", "replace")))
        raise NotAnAnswer(f"an event is no JSON: {_shown(event.data)}") from error
    if event.name == b"error":
        return Delta(error=_error_message(body))
    return read_body(body)


def read_body(body: Any) -> Delta:
    """Read a chunk, or a whole answer that is not streamed.

    Raises:
        NotAnAnswer: as read_event.
    """
    if not isinstance(body, dict):
        raise NotAnAnswer(f"an event is no JSON object: {_shortened(repr(body))}")
    if body.get("error") is not None:
        return Delta(error=_error_message(body["error"]))
    if body.get("object") == "error":  # vLLM up to 0.9
        return Delta(error=_error_message(body))
    choices, usage = body.get("choices"), body.get("usage")
    if not isinstance(choices, list):
        if usage is None:
            raise NotAnAnswer(f"an event has neither choices nor usage: {_shortened(repr(body))}")
        choices = []
    content, text, token_ids, finish_reason = False, "", None, None
    for choice in choices:
        part = choice.get("delta") or choice.get("message") or choice
        more, said = _text_of(part)
        text += said
        ids = choice.get("token_ids")
        if ids is not None:
            token_ids = (*(token_ids or ()), *ids)
        content = content or more or bool(ids)
        finish_reason = choice.get("finish_reason") or finish_reason
    prompt, cached, output = _counts(usage, body.get("timings"))
    return Delta(bool(choices), content, text, token_ids, prompt, cached, output, finish_reason)


def read_error_body(body: bytes) -> str:
    """What the body of an answer with an error status says, as one line."""
    try:
        return _error_message(json.loads(body))
    except ValueError:
        return _shortened(body.decode("utf-8", "replace"))


def _text_of(part: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether there is content in a choice, and its text."""
    text = part.get("text") or ""
    for name in _CONTENT:
        value = part.get(name)
        if isinstance(value, str):
            text += value
        elif value:  # a list of parts
            text += "".join(one.get("text") or "" for one in value if isinstance(one, dict))
    return bool(text or part.get("tool_calls") or any(part.get(name) for name in _REASONING)), text


def _counts(usage: Any, timings: Any) -> tuple[int | None, int | None, int | None]:
    """Prompt, cached and output tokens."""
    if isinstance(usage, dict):
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        return usage.get("prompt_tokens"), cached, usage.get("completion_tokens")
    if isinstance(timings, dict):
        return None, None, timings.get("predicted_n")
    return None, None, None


def _error_message(error: Any) -> str:
    """The message in whatever shape it comes."""
    while isinstance(error, dict):
        inner = next((error[key] for key in ("error", "message", "detail", "msg") if error.get(key)), None)
        if inner is None:
            return _shortened(json.dumps(error))
        error = inner
    if isinstance(error, Sequence) and not isinstance(error, str):
        return _shortened("; ".join(_error_message(one) for one in error))
    return _shortened(str(error))


def _shown(data: bytes) -> str:
    return _shortened(repr(data.decode("utf-8", "replace")))


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_MESSAGE else line[: _LONGEST_MESSAGE - 3] + "..."
