"""Collects one request's moments and counts while it is under way, and makes its trace when it ends."""

from __future__ import annotations

from chairlift.core.request import Nanoseconds, TokenId
from chairlift.lab.client.deltas import Delta
from chairlift.lab.client.health import Tally
from chairlift.lab.client.options import Answer
from chairlift.records.client import Chunks, ErrorClass, RequestTrace, TokenSource


class Stopwatch:
    """One request. Times are given, never taken.

    Args:
        index: the request's number in its schedule.
        scheduled: when the load wants it.
        warmup: it is not to be counted.
        keep_text: keep the answer's text and token ids.
        tally: counts the chunks of all requests.
    """

    __slots__ = (
        "_chunks",
        "_counted",
        "_ids",
        "_text",
        "_uncounted",
        "cached_tokens",
        "ended",
        "error",
        "error_message",
        "finish_reason",
        "first_byte",
        "first_event",
        "index",
        "keep_text",
        "last_activity",
        "output_tokens",
        "prompt_tokens",
        "retry_after",
        "reused",
        "scheduled",
        "sent",
        "status",
        "tally",
        "warmup",
        "written",
    )

    def __init__(
        self,
        index: int,
        scheduled: Nanoseconds,
        *,
        warmup: bool = False,
        keep_text: bool = False,
        tally: Tally | None = None,
    ) -> None:
        self.index = index
        self.scheduled = scheduled
        self.warmup = warmup
        self.keep_text = keep_text
        self.tally = tally or Tally()
        self.sent: Nanoseconds | None = None
        self.written: Nanoseconds | None = None
        self.first_byte: Nanoseconds | None = None
        self.first_event: Nanoseconds | None = None
        self.last_activity: Nanoseconds = scheduled
        """When anything last came or went."""
        self.ended: Nanoseconds | None = None
        """When the outcome was known, if that was before the request's task came to its end."""
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.output_tokens: int | None = None
        self.finish_reason: str | None = None
        self.status: int | None = None
        self.error: ErrorClass | None = None
        self.error_message = ""
        self.retry_after: Nanoseconds | None = None
        self.reused: bool | None = None
        self._chunks = Chunks()
        self._uncounted = 0
        """Chunks so far whose tokens nobody told."""
        self._counted = 0
        """Output tokens that the chunks so far account for."""
        self._text: list[str] = []
        self._ids: list[TokenId] = []

    @property
    def chunks(self) -> int:
        """Chunks so far."""
        return len(self._chunks)

    def event(self, delta: Delta, now: Nanoseconds) -> None:
        """An event came."""
        self.last_activity = now
        if self.first_event is None:
            self.first_event = now
        tokens, source = self._count(delta)
        # A token without text shows only where the target counts; the count that comes alone at the end says nothing
        # of when its tokens came.
        if delta.content or (tokens and delta.choices):
            self.tally.chunks += 1
            self._chunks.add(now, tokens, source)
            if tokens is None:
                self._uncounted += 1
            else:
                self._counted += tokens
            if self.keep_text:
                self._text.append(delta.text)
                self._ids += delta.token_ids or ()
        self._note(delta)

    def fail(self, error: ErrorClass, message: str) -> None:
        """There will be no whole answer. The first cause counts."""
        if self.error is None:
            self.error = error
            self.error_message = message

    def answer(self) -> Answer:
        """What was answered, where texts are kept."""
        return Answer("".join(self._text), tuple(self._ids) or None)

    def trace(self, now: Nanoseconds, *, keep_text: bool | None = None) -> RequestTrace:
        """The request has ended.

        Args:
            now: the time.
            keep_text: whether the answer goes into the trace; by default if it was kept.
        """
        keep_text = self.keep_text if keep_text is None else keep_text
        chunks = self._chunks
        if self._uncounted and self.error is None and self.output_tokens == len(chunks) == self._uncounted:
            chunks = chunks.one_each()
        times = chunks.times
        return RequestTrace(
            index=self.index,
            scheduled=self.scheduled,
            warmup=self.warmup,
            sent=self.sent,
            written=self.written,
            first_byte=self.first_byte,
            first_event=self.first_event,
            first_content=times[0] if times else None,
            last_content=times[-1] if times else None,
            end=now if self.ended is None else self.ended,
            chunks=chunks,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output_tokens,
            finish_reason=self.finish_reason,
            status=self.status,
            error=self.error,
            error_message=self.error_message,
            retry_after=self.retry_after,
            connection_reused=self.reused,
            text="".join(self._text) if keep_text else None,
            token_ids=tuple(self._ids) if keep_text and self._ids else None,
        )

    def _count(self, delta: Delta) -> tuple[int | None, TokenSource]:
        """Tokens of an event, and how they are known.

        A running count tells a chunk's tokens only if every chunk before was counted, too.
        """
        if delta.token_ids is not None:
            return len(delta.token_ids), TokenSource.TOKEN_IDS
        if delta.output_tokens is not None and not self._uncounted:
            return max(0, delta.output_tokens - self._counted), TokenSource.RUNNING_COUNT
        return None, TokenSource.UNKNOWN

    def _note(self, delta: Delta) -> None:
        if delta.prompt_tokens is not None:
            self.prompt_tokens = delta.prompt_tokens
        if delta.cached_tokens is not None:
            self.cached_tokens = delta.cached_tokens
        if delta.output_tokens is not None:
            self.output_tokens = delta.output_tokens
        if delta.finish_reason is not None:
            self.finish_reason = delta.finish_reason
        if delta.error is not None:
            self.fail(ErrorClass.IN_STREAM, delta.error)
