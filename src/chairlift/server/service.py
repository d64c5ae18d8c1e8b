"""What the routes share: the engine, the model's names, and whether requests are welcome."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from uuid import uuid4

from chairlift import __version__
from chairlift.core.errors import ChairliftError
from chairlift.core.request import TokenId
from chairlift.core.status import Health
from chairlift.engine.async_engine import AsyncEngine
from chairlift.server.config import ServerConfig
from chairlift.server.errors import ApiError, from_chairlift
from chairlift.server.metrics import Metrics
from chairlift.server.prompts import PromptReader
from chairlift.server.protocol import ChatBody, CompletionBody
from chairlift.server.retry import RetryAfter
from chairlift.text.chat import ChatTemplate

_OFF_LOOP = 10_000
"""Characters from which tokenizing would be felt by the other clients, and is done in a thread."""


class Service:
    """One engine behind one HTTP server.

    Args:
        engine: started and closed by the application's lifespan.
        model: the model's own name, used when the configuration names none.
        template: of chats; None when the model has none.
        config: the server's settings.
    """

    def __init__(self, engine: AsyncEngine, *, model: str, template: ChatTemplate | None, config: ServerConfig) -> None:
        self.engine = engine
        self.config = config
        self.prompts = PromptReader(
            engine.tokenizer, template, config.served_model_name or (model,), config.max_choices
        )
        self.created = int(time.time())
        self.retry = RetryAfter()
        self.metrics = Metrics(self.names[0], engine.stats, __version__)
        self.ready = False
        self.draining = False
        engine.attach(self.metrics)
        engine.attach(self.retry)

    @property
    def names(self) -> tuple[str, ...]:
        return self.prompts.names

    def health(self) -> Health:
        """Whether a request that came now would be worked on."""
        if self.draining:
            return Health(ok=False, cause="the server is shutting down and takes no more requests.")
        return self.engine.health()

    def error(self, error: ChairliftError) -> ApiError:
        """What a client is told of an error raised on purpose."""
        return from_chairlift(error, self._come_back)

    def answer_id(self, prefix: str) -> str:
        return f"{prefix}-{uuid4().hex}"

    async def completion_prompts(self, body: CompletionBody) -> list[Sequence[TokenId]]:
        """See PromptReader.completion."""
        characters = sum(len(prompt) for prompt in body.prompts() if isinstance(prompt, str))
        if characters < _OFF_LOOP:
            return self.prompts.completion(body)
        return await asyncio.to_thread(self.prompts.completion, body)

    async def chat_prompts(self, body: ChatBody) -> list[Sequence[TokenId]]:
        """See PromptReader.chat. However short the messages, how long the template runs is not known."""
        return await asyncio.to_thread(self.prompts.chat, body)

    def _come_back(self) -> int:
        """Seconds after which a refused client may try again."""
        if self.draining:
            return max(1, math.ceil(self.config.drain_timeout / 1e9))
        return self.retry.seconds(self.engine.core.now(), self.engine.stats().usage.waiting)
