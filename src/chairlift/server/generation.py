"""The answers to one HTTP request: one stream of the engine for each choice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from chairlift.core.request import FinishReason, TokenId
from chairlift.engine.async_engine import AsyncEngine, RequestStream
from chairlift.engine.outputs import OutputDelta
from chairlift.server.answers import AnswerFormat, Tally, encode
from chairlift.server.connection import sse
from chairlift.server.errors import ApiError
from chairlift.server.protocol import GenerationBody

_DONE = sse(b"[DONE]")


class Generation:
    """Streams that were accepted together. Whoever made it must close() it."""

    def __init__(self, streams: Sequence[RequestStream], choices_per_prompt: int) -> None:
        self._streams = streams
        self._choices_per_prompt = choices_per_prompt

    @classmethod
    def submit(
        cls, engine: AsyncEngine, prompts: Sequence[Sequence[TokenId]], body: GenerationBody, answer_id: str
    ) -> Generation:
        """Hand all choices to the engine at once; if one is refused, none runs.

        Raises:
            RequestError: a parameter cannot be, or the scheduler refused.
            EngineError: the engine takes nothing in.
        """
        choices_per_prompt = body.n or 1
        params = [body.sampling(choice) for choice in range(choices_per_prompt)]
        streams: list[RequestStream] = []
        with engine.core.together():
            try:
                for prompt in prompts:
                    for one in params:
                        stream = engine.submit(
                            prompt,
                            one,
                            request_id=f"{answer_id}-{len(streams)}",
                            priority=body.priority or 0,
                            cache_salt=body.cache_salt or "",
                        )
                        streams.append(stream)
            except BaseException:
                # Not the streams' own cancel(): that acts after the next step, this before it is planned.
                for stream in streams:
                    engine.cancel(stream.request_id)
                raise
        return cls(streams, choices_per_prompt)

    def close(self) -> None:
        """Cancel what has not ended; its KV blocks are free at the end of the step in flight."""
        for stream in self._streams:
            stream.cancel()

    async def whole(self, form: AnswerFormat) -> bytes:
        """The body of the complete answer.

        Raises:
            ApiError: the device failed on a choice, or the server shut down before the end.
        """
        answers: dict[int, OutputDelta] = {}
        async for choice, delta in self._deltas():
            answers[choice] = answers[choice].joined(delta) if choice in answers else delta
        outputs = [answers[choice] for choice in range(len(self._streams))]
        return encode(form.whole(outputs, self._choices_per_prompt))

    async def events(self, form: AnswerFormat, body: GenerationBody) -> AsyncIterator[bytes]:
        """The answer as server-sent events: chunks, usage if asked for, [DONE]. A failure is an event of its own."""
        begun: set[int] = set()
        tally = Tally(self._choices_per_prompt)
        try:
            async for choice, delta in self._deltas():
                tally.note(choice, delta)
                if not delta.text and delta.finish_reason is None:
                    continue  # half a character, or what may become a stop string: nothing to show yet
                usage = {"usage": tally.usage() if body.continuous_usage else None} if body.include_usage else {}
                yield sse(form.chunk(choice, delta, first=choice not in begun, usage=usage))
                begun.add(choice)
            if body.include_usage:
                yield sse(form.usage_chunk(tally.usage()))
        except ApiError as error:
            yield sse(encode(error.body()))
        yield _DONE

    async def _deltas(self) -> AsyncIterator[tuple[int, OutputDelta]]:
        """Choice and delta, as they come.

        Raises:
            ApiError: a choice ended otherwise than by stop or length.
        """
        if len(self._streams) == 1:  # by far the most: no tasks needed
            async for delta in self._streams[0]:
                _check_end(delta)
                yield 0, delta
            return
        waiting = {asyncio.ensure_future(anext(stream)): choice for choice, stream in enumerate(self._streams)}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=lambda task: waiting[task]):
                    choice, delta = waiting.pop(task), task.result()
                    _check_end(delta)
                    if delta.finish_reason is None:
                        waiting[asyncio.ensure_future(anext(self._streams[choice]))] = choice
                    yield choice, delta
        finally:
            for task in waiting:
                task.cancel()


def _check_end(delta: OutputDelta) -> None:
    if delta.finish_reason is FinishReason.ERROR:
        raise ApiError(500, delta.error, code="device_error")
    if delta.finish_reason is FinishReason.CANCELLED:
        raise ApiError(
            503,
            f"the server shut down after {delta.output_tokens:,} tokens of this answer; ask again elsewhere or later.",
            code="shut_down",
            retry_after=1,
        )
