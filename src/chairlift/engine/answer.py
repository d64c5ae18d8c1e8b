"""One request inside the engine: its text as it grows, where it stops, and the times it lived through."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from enum import Enum

from chairlift.core.request import FinishReason, Nanoseconds, TokenId
from chairlift.engine.outputs import OutputDelta
from chairlift.engine.params import SamplingParams
from chairlift.records.schema import RequestRecord
from chairlift.text.detokenize import Detokenizer
from chairlift.text.stop import StopChecker
from chairlift.text.tokenizer import Tokenizer

Sink = Callable[[OutputDelta], None]
"""Where an answer goes; called on the engine's thread and must not block."""


class Stage(Enum):
    """Where a request is, as the scheduler's decisions told."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    """Its last token is computed; its result may be held back."""


class Answer:
    """Grows by push() when a token is computed, and leaves by take() when the scheduler releases it."""

    __slots__ = (
        "_checker",
        "_detokenizer",
        "_gaps",
        "_include_stop",
        "_last_token",
        "_min_tokens",
        "_released_tokens",
        "_stop_ids",
        "_streamed",
        "_text",
        "admitted",
        "arrival",
        "cached_tokens",
        "finished",
        "first_computed",
        "first_released",
        "generated",
        "preemptions",
        "prompt_tokens",
        "request_id",
        "sink",
        "stage",
        "stop_reason",
        "tokens_waiting",
    )

    def __init__(
        self,
        request_id: str,
        *,
        prompt_tokens: int,
        params: SamplingParams,
        stop_ids: frozenset[TokenId],
        tokenizer: Tokenizer,
        arrival: Nanoseconds,
        sink: Sink,
    ) -> None:
        self.request_id = request_id
        self.sink = sink
        self.prompt_tokens = prompt_tokens
        self.arrival = arrival
        self.stage = Stage.WAITING
        self.tokens_waiting = prompt_tokens
        """Tokens to compute when it was last queued."""
        self.generated = 0
        self.cached_tokens = 0
        self.preemptions = 0
        self.stop_reason: str | TokenId | None = None
        self.admitted: Nanoseconds | None = None
        self.first_computed: Nanoseconds | None = None
        self.first_released: Nanoseconds | None = None
        self.finished: Nanoseconds | None = None
        self._detokenizer = Detokenizer(tokenizer, skip_special_tokens=params.skip_special_tokens)
        self._checker = (
            StopChecker(params.stop_strings, include_stop_str_in_output=params.include_stop_str_in_output)
            if params.stop_strings
            else None
        )
        self._stop_ids = stop_ids
        self._min_tokens = params.min_tokens
        self._include_stop = params.include_stop_str_in_output
        self._text: list[str] = []
        """Safe to show, not released yet."""
        self._released_tokens = 0
        self._last_token: Nanoseconds = 0
        self._gaps = array("q")
        self._streamed = True

    def push(self, token: TokenId) -> FinishReason | None:
        """The next token. Returns STOP when it completes a stop string; stop tokens end a request in the scheduler."""
        self.generated += 1
        if token in self._stop_ids and self.generated >= max(1, self._min_tokens):
            self.stop_reason = token
            if not self._include_stop:
                return None
        text = self._detokenizer.push(token)
        if self._checker is not None:
            text = self._checker.push(text, armed=self.generated > self._min_tokens)
            if self._checker.matched is not None:
                self.stop_reason = self._checker.matched
                self._text.append(text)
                return FinishReason.STOP
        if text:
            self._text.append(text)
        return None

    def computed(self, now: Nanoseconds) -> None:
        """The token just pushed is committed."""
        if self.first_computed is None:
            self.first_computed = now
        else:
            self._gaps.append(now - self._last_token)
        self._last_token = now

    def take(self, tokens: Sequence[TokenId], now: Nanoseconds) -> OutputDelta:
        """Tokens are released, and with them all text there is: a release never leaves a computed token behind."""
        if tokens:
            if self.first_released is None:
                self.first_released = now
            self._released_tokens += len(tokens)
            if len(tokens) != 1 or self._last_token != now:
                self._streamed = False
        text = "".join(self._text)
        self._text.clear()
        return OutputDelta(
            self.request_id, text, tuple(tokens), self.prompt_tokens, self.cached_tokens, self._released_tokens
        )

    def end(self, tokens: Sequence[TokenId], now: Nanoseconds, reason: FinishReason, error: str) -> OutputDelta:
        """The result leaves: what was withheld was no stop string, and a half character becomes U+FFFD."""
        if self.stop_reason is None:
            rest = self._detokenizer.flush()
            if self._checker is not None:
                rest = self._checker.push(rest) + self._checker.flush()
            self._text.append(rest)
        elif self._checker is not None:
            self._text.append(self._checker.flush())
        if self.finished is None:
            self.finished = now
        delta = self.take(tokens, now)
        return OutputDelta(
            request_id=delta.request_id,
            text=delta.text,
            token_ids=delta.token_ids,
            prompt_tokens=delta.prompt_tokens,
            cached_tokens=delta.cached_tokens,
            output_tokens=delta.output_tokens,
            finish_reason=reason,
            stop_reason=self.stop_reason if reason is FinishReason.STOP else None,
            error=error,
        )

    def record(self, *, policy: str, now: Nanoseconds, reason: FinishReason, error: str) -> RequestRecord:
        """What the request lived through, now that its result left."""
        return RequestRecord(
            request_id=self.request_id,
            policy=policy,
            arrival=self.arrival,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.generated,
            preemptions=self.preemptions,
            admitted=self.admitted,
            first_token_computed=self.first_computed,
            first_token_released=self.first_released,
            finished=self.finished,
            released=now,
            streamed=self._streamed,
            finish_reason=reason,
            error=error,
            token_gaps=tuple(self._gaps),
        )
