"""A model in a Python program: `LLM(model).generate(prompts)`, or `stream` from asyncio."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeAlias

from chairlift.core.errors import RequestError, RequestRefused
from chairlift.core.reasons import Reason
from chairlift.core.request import FinishReason, TokenId
from chairlift.engine.answer import Sink
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.config import EngineConfig
from chairlift.engine.core import EngineCore
from chairlift.engine.loader import LoadedModel, load_model
from chairlift.engine.outputs import OutputDelta, RequestOutput
from chairlift.engine.params import SamplingParams
from chairlift.engine.recording import Recording
from chairlift.text.chat import require
from chairlift.text.tokenizer import Tokenizer

Prompt: TypeAlias = str | Sequence[TokenId]
"""Text, or token ids as they are."""
Message: TypeAlias = Mapping[str, Any]
"""As the OpenAI API has it: role, content."""


@dataclass(frozen=True, slots=True)
class _Tokenized:
    text: str | None
    ids: list[TokenId]


class LLM:
    """One model, loaded, with its step loop running.

        with LLM("SmolLM2-135M-Instruct.Q4_1.gguf", policy="static", batch_size=4) as llm:
            for output in llm.generate(["Once upon a time", "The sea"], SamplingParams(max_tokens=32)):
                print(output.text)

    Batches never wait for requests of a later call: whatever one call brings arrives together, and an unfilled batch
    leaves at once.

    Args:
        model: see EngineConfig.model; or one that is loaded already.
        settings: any field of EngineConfig, RunnerSettings or SchedulerConfig by name, for a model to be loaded.

    Raises:
        ConfigError, ModelError, OutOfDeviceMemory: as load_model.
    """

    def __init__(self, model: str | LoadedModel, **settings: Any) -> None:
        loaded = load_model(EngineConfig.of(model, settings)) if isinstance(model, str) else model
        self.name = loaded.name
        self.chat_template = loaded.chat_template
        self._core = EngineCore(loaded.scheduler, loaded.runner, loaded.tokenizer, loaded.sampler)
        self._core.end_input()
        self._recording = Recording(self._core, loaded, loaded.record) if loaded.record else None
        self._numbers = itertools.count()
        self._engine = AsyncEngine(self._core)
        self._engine.start()

    @property
    def engine(self) -> AsyncEngine:
        """The engine itself: statistics, observers, live switching."""
        return self._engine

    @property
    def tokenizer(self) -> Tokenizer:
        return self._core.tokenizer

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Answer prompts, as many at once as the policy runs, and wait for all of them.

        Args:
            prompts: one or several, each text or token ids.
            params: for all, or one for each; default SamplingParams().

        Returns:
            One output for each prompt, in their order. One that failed on the device has finish_reason error; the
            others are not concerned.

        Raises:
            RequestRefused: a request can never run; the message has the numbers. None of the others is answered.
            RequestError: prompts and params do not match.
            EngineClosed, EngineUnhealthy: the engine is gone.
        """
        several = [_Tokenized(one if isinstance(one, str) else None, self._ids(one)) for one in _several(prompts)]
        return self._run(several, params)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        **template_options: Any,
    ) -> list[RequestOutput]:
        """Answer conversations, by the model's chat template.

        Args:
            messages: one conversation or several.
            params: for all, or one for each.
            template_options: see ChatTemplate.render.

        Raises:
            RequestError: the model has no chat template, or it refuses these messages; further as generate().
        """
        template = require(self.chat_template, self.name)
        single = [item for item in messages if isinstance(item, Mapping)]
        several = [single] if single else [item for item in messages if not isinstance(item, Mapping)]
        prompts = [template.render(conversation, **template_options) for conversation in several]
        return self._run([_Tokenized(one.text, self.tokenizer.encode_prompt(one)) for one in prompts], params)

    async def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> AsyncGenerator[OutputDelta, None]:
        """One answer as it comes. Whoever stops reading cancels it.

        Raises:
            RequestRefused, EngineClosed, EngineUnhealthy: as AsyncEngine.submit.
        """
        request_id = f"{self.name}-{next(self._numbers)}"
        stream = self._engine.submit(self._ids(prompt), params or SamplingParams(), request_id=request_id)
        async with stream:
            async for delta in stream:
                yield delta

    def close(self) -> None:
        """End what is in progress and free the device. Closing again does nothing."""
        self._engine.stop()
        if self._recording is not None:
            self._recording.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # inside

    def _ids(self, prompt: Prompt) -> list[TokenId]:
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)

    def _run(
        self, prompts: Sequence[_Tokenized], params: SamplingParams | Sequence[SamplingParams] | None
    ) -> list[RequestOutput]:
        """Submit all, wait for all; what the queue has no room for yet is submitted as others leave."""
        waiting = deque(zip(prompts, _for_each(params, len(prompts)), strict=True))
        arrived: SimpleQueue[OutputDelta] = SimpleQueue()
        answers: dict[str, OutputDelta | None] = {}
        flying: set[str] = set()
        try:
            while waiting or flying:
                self._submit(waiting, flying, answers, arrived.put)
                delta = _collect(arrived, answers)
                flying.discard(delta.request_id)
        except BaseException:
            for request_id in flying:
                self._engine.cancel(request_id)
            raise
        return [_whole(delta, prompt) for delta, prompt in zip(answers.values(), prompts, strict=True) if delta]

    def _submit(
        self,
        waiting: deque[tuple[_Tokenized, SamplingParams]],
        flying: set[str],
        answers: dict[str, OutputDelta | None],
        sink: Sink,
    ) -> None:
        """As many as the queue may hold, together: so that batches see all there is."""
        most = self._core.config.max_queued_requests or len(waiting) + len(flying)
        with self._core.together():
            while waiting and len(flying) < most:
                prompt, params = waiting[0]
                request_id = f"{self.name}-{next(self._numbers)}"
                try:
                    self._core.submit(prompt.ids, params, request_id=request_id, sink=sink)
                except RequestRefused as error:
                    if error.refused.reason is Reason.QUEUE_FULL and flying:
                        break  # others have filled the queue, or the prompts are long: later
                    raise
                waiting.popleft()
                flying.add(request_id)
                answers[request_id] = None
        self._engine.wake()


def _collect(arrived: SimpleQueue[OutputDelta], answers: dict[str, OutputDelta | None]) -> OutputDelta:
    """Join what arrives to the answers, up to the first that ends one."""
    while True:
        delta = arrived.get()
        before = answers[delta.request_id]
        answers[delta.request_id] = delta if before is None else before.joined(delta)
        if delta.finish_reason is not None:
            return delta


def _several(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """A list of prompts, whether one or several were given."""
    if isinstance(prompts, str):
        return [prompts]
    ids = [item for item in prompts if isinstance(item, int)]
    if ids and len(ids) != len(prompts):
        raise RequestError("prompts mix token ids with whole prompts: give one prompt, or a list of prompts.")
    return [ids] if ids else [item for item in prompts if not isinstance(item, int)]


def _for_each(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if len(params) != count:
        raise RequestError(f"there are {len(params)} params for {count} prompts: give one for all, or one for each.")
    return list(params)


def _whole(delta: OutputDelta, prompt: _Tokenized) -> RequestOutput:
    return RequestOutput(
        request_id=delta.request_id,
        prompt=prompt.text,
        prompt_token_ids=tuple(prompt.ids),
        text=delta.text,
        token_ids=delta.token_ids,
        finish_reason=delta.finish_reason or FinishReason.ERROR,
        stop_reason=delta.stop_reason,
        cached_tokens=delta.cached_tokens,
        error=delta.error,
    )
