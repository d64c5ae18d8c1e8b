"""The bodies of answers: whole ones, and the chunks of a stream."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chairlift import __version__
from chairlift.core.request import FinishReason
from chairlift.engine.outputs import OutputDelta

FINGERPRINT = f"chairlift-{__version__}"


def encode(body: object) -> bytes:
    """JSON in ASCII: no character of an answer can then be taken for a line break by a reader of events."""
    return json.dumps(body, separators=(",", ":")).encode("ascii")


@dataclass(slots=True)
class Tally:
    """Tokens of one HTTP request. The prompt counts once, however many answers are drawn from it."""

    choices_per_prompt: int
    last: dict[int, OutputDelta] = field(default_factory=dict)
    """Choice -> its latest delta, which has its counts so far."""

    def note(self, choice: int, delta: OutputDelta) -> None:
        self.last[choice] = delta

    def usage(self) -> dict[str, Any]:
        """OpenAI's usage object."""
        firsts = [delta for choice, delta in self.last.items() if choice % self.choices_per_prompt == 0]
        prompt = sum(delta.prompt_tokens for delta in firsts)
        output = sum(delta.output_tokens for delta in self.last.values())
        return {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": sum(delta.cached_tokens for delta in firsts)},
        }


class AnswerFormat(ABC):
    """How one kind of request is answered.

    Args:
        answer_id: the answer's id.
        model: the name the request asked for.
        created: seconds since 1970.
    """

    kind: str
    chunk_kind: str

    def __init__(self, answer_id: str, model: str, created: int) -> None:
        self.answer_id = answer_id
        self._model = model
        self._created = created

    def whole(self, outputs: Sequence[OutputDelta], choices_per_prompt: int) -> dict[str, Any]:
        """The body of an answer that is not streamed; outputs are whole answers by choice."""
        tally = Tally(choices_per_prompt, dict(enumerate(outputs)))
        choices = [
            {"index": index, **self._content(output.text), **_end(output)} for index, output in enumerate(outputs)
        ]
        return {**self._head(self.kind), "choices": choices, "usage": tally.usage()}

    def chunk(self, choice: int, delta: OutputDelta, *, first: bool, usage: Mapping[str, Any]) -> bytes:
        """One chunk of a stream.

        Args:
            choice: which answer it belongs to.
            delta: what came.
            first: whether it is the first of its choice.
            usage: its field `usage`, if it has one.
        """
        choices = [{"index": choice, **self._delta(delta.text, first=first), **_end(delta)}]
        return encode({**self._head(self.chunk_kind), "choices": choices, **usage})

    def usage_chunk(self, usage: dict[str, Any]) -> bytes:
        """The last chunk of a stream that includes usage: no choices."""
        return encode({**self._head(self.chunk_kind), "choices": [], "usage": usage})

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.answer_id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": FINGERPRINT,
        }

    @abstractmethod
    def _content(self, text: str) -> dict[str, Any]:
        """The text's place in a whole answer."""

    @abstractmethod
    def _delta(self, text: str, *, first: bool) -> dict[str, Any]:
        """The text's place in a chunk."""


class CompletionFormat(AnswerFormat):
    """/v1/completions."""

    kind = chunk_kind = "text_completion"

    def _content(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def _delta(self, text: str, *, first: bool) -> dict[str, Any]:  # noqa: ARG002 - every chunk looks alike
        return {"text": text}


class ChatFormat(AnswerFormat):
    """/v1/chat/completions. The role comes with the first content, not before it: a chunk without content would stop
    the clock of those who measure the time to the first token.
    """

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def _content(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def _delta(self, text: str, *, first: bool) -> dict[str, Any]:
        return {"delta": {"role": "assistant", "content": text} if first else {"content": text}}


def _end(delta: OutputDelta) -> dict[str, Any]:
    """Why the answer ended, as far as it has; stop_reason is vLLM's."""
    reason = delta.finish_reason if delta.finish_reason in {FinishReason.STOP, FinishReason.LENGTH} else None
    return {"logprobs": None, "finish_reason": reason, "stop_reason": delta.stop_reason}
