"""Any server that speaks OpenAI's API, by its URL."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import aiohttp

from chairlift.core.errors import ConfigError
from chairlift.lab.client.clock import Clock, RunClock
from chairlift.lab.client.devices import local_devices
from chairlift.lab.client.driver import Driver
from chairlift.lab.client.health import allow_many_files
from chairlift.lab.client.http import HttpStream, open_session
from chairlift.lab.client.options import Answer, PromptWriter, RunOptions, Stop
from chairlift.lab.client.stopwatch import Stopwatch
from chairlift.lab.loads.fitting import Guess
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.request import ScheduledRequest
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.targets.base import TargetInfo
from chairlift.lab.targets.bodies import Api, BodyWriter
from chairlift.lab.targets.probe import ServerFacts, base_url, guess_lengths, look_at
from chairlift.lab.targets.prometheus import read_sample
from chairlift.lab.targets.prompting import ChatPrompts, PlainPrompts, TokenIdPrompts
from chairlift.records.client import Observation, ServerSample
from chairlift.text.chat import ChatTemplate
from chairlift.text.tokenizer import Tokenizer

_PATHS: Final[Mapping[Api, str]] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
_SAMPLE_PATIENCE: Final = aiohttp.ClientTimeout(total=2.0)
_PATIENCE_AT_THE_ENDS: Final = aiohttp.ClientTimeout(total=30.0)
"""Nothing waits for the first sample and the last, and totals are the difference of the two."""


@dataclass(frozen=True, slots=True)
class UrlSettings:
    """How a server is talked to."""

    model: str | None = None
    """Which of its models. Default: the first."""
    api: Api = "completions"
    """completions: text or token ids go in as they are. chat: the server's chat template is around them."""
    kind: str | None = None
    """Which server it is, where it cannot be told: vllm, sglang, tgi, llama.cpp, tensorrt-llm, triton, chairlift,
    openai."""
    api_key: str | None = field(default=None, repr=False)
    """Sent as a bearer token."""
    metrics_url: str | None = None
    """Where its metrics are. Default: /metrics."""
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Fields for the body of each request, such as temperature; null takes one out that would be there."""


class UrlTarget:
    """One server.

    Args:
        url: http://HOST:PORT, with or without /v1.
        settings: see UrlSettings.
        tokenizer: the model's; with it prompts have exactly the lengths asked for.
        template: the model's chat template; the same for chats.
        clock: makes the clock of each run.
    """

    def __init__(
        self,
        url: str,
        settings: UrlSettings | None = None,
        *,
        tokenizer: Tokenizer | None = None,
        template: ChatTemplate | None = None,
        clock: Callable[[], Clock] = RunClock,
    ) -> None:
        self.url = base_url(url)
        self.settings = settings or UrlSettings()
        self._tokenizer = tokenizer
        self._template = template
        self._clock = clock
        self._facts: ServerFacts | None = None
        self._guess: Guess | None = None

    async def open(self) -> TargetInfo:
        """See Target.open. Where the tokenizer is unknown, two short requests tell how the server counts words."""
        settings = self.settings
        async with aiohttp.ClientSession(headers=self._headers()) as session:
            facts = await look_at(
                session, self.url, model=settings.model, kind=settings.kind, metrics_url=settings.metrics_url
            )
            if self._tokenizer is None:
                self._guess = await guess_lengths(session, self._endpoint(), facts.model, settings.api)
        self._facts = facts
        return TargetInfo(
            kind=facts.dialect.kind,
            name=self.url,
            model=facts.model,
            version=facts.version,
            prompts=self._describe_prompts(facts),
            max_model_len=facts.max_model_len,
            notes=tuple(self._notes(facts)),
            details=facts.details,
        )

    async def run(
        self, schedule: Schedule, options: RunOptions | None = None, stop: Stop | None = None
    ) -> AsyncGenerator[Observation, None]:
        """See Target.run.

        Raises:
            ConfigError: the target was not opened.
        """
        options = options or RunOptions()
        facts = self._opened()
        allow_many_files()
        clock = self._clock()
        async with open_session(self._headers()) as session, aiohttp.ClientSession(headers=self._headers()) as beside:
            sender = _HttpSender(
                HttpStream(session, self._endpoint(), clock),
                BodyWriter(self.settings.api, facts.model, facts.dialect, self.settings.extra),
                self._writer(schedule.load, facts, options.salt),
                beside,
                facts,
            )
            try:
                driver = Driver(sender, schedule, clock, options, stop, local_devices())
                async with aclosing(driver.run()) as observations:
                    async for observation in observations:
                        yield observation
            finally:
                await sender.close()

    async def close(self) -> None:
        """Nothing is held between runs."""

    def _opened(self) -> ServerFacts:
        if self._facts is None:
            raise ConfigError(f"{self.url} was not looked at: call open() before run().")
        return self._facts

    def _endpoint(self) -> str:
        return self.url + _PATHS[self.settings.api]

    def _headers(self) -> dict[str, str]:
        key = self.settings.api_key
        return {} if key is None else {"authorization": f"Bearer {key}"}

    def _writer(self, load: Load, facts: ServerFacts, salt: str) -> PromptWriter:
        if self.settings.api == "chat":
            return ChatPrompts(load, self._tokenizer, self._template, self._guess, salt)
        if self._tokenizer is not None and facts.dialect.token_ids:
            return TokenIdPrompts(load, self._tokenizer, salt)
        return PlainPrompts(load, self._tokenizer, self._guess, salt)

    def _describe_prompts(self, facts: ServerFacts) -> str:
        chat = self.settings.api == "chat"
        if not chat and self._tokenizer is not None and facts.dialect.token_ids:
            return "token ids, exactly as long as asked"
        what = "messages" if chat else "text"
        if self._tokenizer is not None and (not chat or self._template is not None):
            return f"{what}, exactly as long as asked by the tokenizer that was given"
        how = "as two probes told" if self._guess is not None else "a word for a token"
        return f"{what} of about the length asked for ({how}); the server's usage says how long they were"

    def _notes(self, facts: ServerFacts) -> list[str]:
        notes = []
        if not facts.dialect.ignore_eos:
            notes.append("the server cannot be told to ignore the end of sequence: answers may be shorter than asked.")
        if not (facts.dialect.fields or facts.dialect.stream_options):
            notes.append(
                "chunks come without token counts: times between tokens are observable only where the usage at the end "
                "equals the number of chunks."
            )
        if facts.metrics_url is None:
            notes.append("the server has no metrics that are known here: nothing is sampled from it.")
        return notes


class _HttpSender:
    """A Sender over HTTP."""

    def __init__(
        self,
        stream: HttpStream,
        bodies: BodyWriter,
        writer: PromptWriter,
        beside: aiohttp.ClientSession,
        facts: ServerFacts,
    ) -> None:
        self._stream = stream
        self._bodies = bodies
        self._writer = writer
        self._beside = beside
        """A session of its own for the metrics: what samples does not share connections with what is measured."""
        self._facts = facts

    def prepare(self, request: ScheduledRequest, answers: Mapping[int, Answer]) -> bytes:
        return self._bodies.encode(request, self._writer(request, answers))

    async def send(self, request: ScheduledRequest, prepared: bytes, watch: Stopwatch) -> None:  # noqa: ARG002
        await self._stream.send(prepared, watch)

    async def sample(self, *, complete: bool) -> ServerSample | None:
        url = self._facts.metrics_url
        if url is None:
            return None
        try:
            patience = _PATIENCE_AT_THE_ENDS if complete else _SAMPLE_PATIENCE
            async with self._beside.get(url, timeout=patience) as response:
                page = await response.text()
                if response.status != 200:
                    return ServerSample(0, 0, error=f"status {response.status}")
            return read_sample(page, self._facts.dialect.metrics, buckets=complete)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return ServerSample(0, 0, error=f"{type(error).__name__}: {error}".rstrip(": "))

    def exhausted(self) -> None:
        """A server over HTTP is not told."""

    async def close(self) -> None:
        await self._stream.close()
