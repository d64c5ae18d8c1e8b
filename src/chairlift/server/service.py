"""What the routes share: the engine, the model's names, and whether requests are welcome."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from functools import partial
from uuid import uuid4

from chairlift import __version__
from chairlift.core.errors import ChairliftError, RequestError
from chairlift.core.request import TokenId
from chairlift.core.status import Health
from chairlift.engine.async_engine import AsyncEngine
from chairlift.server.config import ServerConfig
from chairlift.server.errors import ApiError, from_chairlift, invalid
from chairlift.server.metrics import Metrics
from chairlift.server.protocol import ChatBody, CompletionBody
from chairlift.server.retry import RetryAfter
from chairlift.text.chat import ChatTemplate, require

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
        self.names = config.served_model_name or (model,)
        self.created = int(time.time())
        self.retry = RetryAfter()
        self.metrics = Metrics(self.names[0], engine.stats, __version__)
        self.ready = False
        self.draining = False
        self._template = template
        engine.attach(self.metrics)
        engine.attach(self.retry)

    def health(self) -> Health:
        """Whether a request that came now would be worked on."""
        if self.draining:
            return Health(ok=False, cause="the server is shutting down and takes no more requests.")
        return self.engine.health()

    def error(self, error: ChairliftError) -> ApiError:
        """What a client is told of an error raised on purpose."""
        return from_chairlift(error, self._come_back)

    def model_name(self, asked: str | None) -> str:
        """The name to answer under.

        Raises:
            ApiError: 404, there is no such model here.
        """
        if asked is None:
            return self.names[0]
        if asked not in self.names:
            raise ApiError(
                404,
                f"the model {asked!r} is not served here; there is {', '.join(self.names)}.",
                param="model",
                code="model_not_found",
            )
        return asked

    def answer_id(self, prefix: str) -> str:
        return f"{prefix}-{uuid4().hex}"

    async def completion_prompts(self, body: CompletionBody) -> list[Sequence[TokenId]]:
        """Token ids of each prompt. Control tokens in the text count: whoever completes text writes the format.

        Raises:
            ApiError: an id that is none, or too many answers asked for.
            RequestError: text that cannot be encoded.
        """
        prompts = body.prompts()
        self._check_choices(len(prompts), body.n or 1)
        encoded: list[Sequence[TokenId]] = []
        for prompt in prompts:
            if isinstance(prompt, str):
                encoded.append(await self._encode(prompt, add_special_tokens=body.add_special_tokens is not False))
            else:
                self._check_ids(prompt, "prompt")
                encoded.append(prompt)
        self._check_ids(body.stop_token_ids or (), "stop_token_ids")
        return encoded

    async def chat_prompt(self, body: ChatBody) -> Sequence[TokenId]:
        """Token ids of a conversation, in the model's own chat format.

        Raises:
            ApiError: too many answers asked for.
            RequestError: there is no template, or it refuses the messages.
        """
        self._check_choices(1, body.n or 1)
        self._check_ids(body.stop_token_ids or (), "stop_token_ids")
        template = require(self._template, self.names[0])

        def render() -> Sequence[TokenId]:
            prompt = template.render(
                body.messages,
                add_generation_prompt=body.add_generation_prompt is not False,
                variables=body.chat_template_kwargs,
            )
            return self.engine.tokenizer.encode_prompt(prompt)

        try:
            # A template is a program: however short the messages, how long it runs is not known.
            return await asyncio.to_thread(render)
        except RequestError as error:
            raise invalid(str(error), "messages") from error

    async def _encode(self, text: str, *, add_special_tokens: bool) -> list[TokenId]:
        encode = partial(self.engine.tokenizer.encode, text, add_special_tokens=add_special_tokens, parse_special=True)
        return encode() if len(text) < _OFF_LOOP else await asyncio.to_thread(encode)

    def _come_back(self) -> int:
        """Seconds after which a refused client may try again."""
        if self.draining:
            return max(1, math.ceil(self.config.drain_timeout / 1e9))
        return self.retry.seconds(self.engine.core.now(), self.engine.stats().usage.waiting)

    def _check_choices(self, prompts: int, n: int) -> None:
        if prompts * n > self.config.max_choices:
            raise invalid(
                f"{prompts:,} prompts times n {n:,} make {prompts * n:,} answers; {self.config.max_choices:,} are the "
                "most for one request (--max-choices).",
                "n" if n > 1 else "prompt",
            )

    def _check_ids(self, ids: Sequence[TokenId], field: str) -> None:
        size = self.engine.tokenizer.vocab_size
        wrong = next((one for one in ids if not 0 <= one < size), None)
        if wrong is not None:
            raise invalid(f"{field} has the token id {wrong}; the model's are 0 to {size - 1:,}.", field)
