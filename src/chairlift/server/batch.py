"""What the lines of an offline batch mean: the same bodies, read and answered as the server does."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from chairlift.core.errors import ChairliftError
from chairlift.core.request import TokenId
from chairlift.engine.offline import BatchError, BatchJob
from chairlift.engine.outputs import OutputDelta
from chairlift.server.answers import AnswerFormat, ChatFormat, CompletionFormat, Tally
from chairlift.server.errors import ApiError, from_chairlift, invalid
from chairlift.server.protocol import ChatBody, CompletionBody, GenerationBody
from chairlift.text.chat import ChatTemplate, require
from chairlift.text.tokenizer import Tokenizer


class OpenAIBatch:
    """Implements engine.offline.BatchFormat for /v1/completions and /v1/chat/completions.

    Args:
        tokenizer: the model's.
        template: of chats; None when the model has none.
        model: the name that answers bear where a body names none.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None, model: str) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._model = model

    def read(self, custom_id: str, url: str, body: Mapping[str, Any]) -> BatchJob | BatchError:
        """Understand one line; what is wrong with it becomes its answer."""
        try:
            return self._job(custom_id, url, json.dumps(body).encode())
        except ApiError as error:
            return BatchError(error.status, error.body())
        except ChairliftError as error:
            return self.error(error)

    def error(self, error: ChairliftError) -> BatchError:
        """What the server would say of it."""
        answer = from_chairlift(error, lambda: 1)
        return BatchError(answer.status, answer.body())

    def _job(self, custom_id: str, url: str, raw: bytes) -> BatchJob:
        parsed: CompletionBody | ChatBody
        form: AnswerFormat
        if url == "/v1/completions":
            parsed = CompletionBody.read(raw)
            prompts = self._texts(parsed)
            form = CompletionFormat(f"cmpl-{custom_id}", parsed.model or self._model, int(time.time()))
        elif url == "/v1/chat/completions":
            parsed = ChatBody.read(raw)
            prompts = [self._chat(parsed)]
            form = ChatFormat(f"chatcmpl-{custom_id}", parsed.model or self._model, int(time.time()))
        else:
            raise invalid(f"url is {url!r}; it must be /v1/completions or /v1/chat/completions.", "url")
        if parsed.stream:
            raise invalid("stream is for the server: leave it out of a batch.", "stream")
        self._check_ids(parsed.stop_token_ids or (), "stop_token_ids")
        return _job_of(parsed, prompts, form)

    def _texts(self, body: CompletionBody) -> list[Sequence[TokenId]]:
        prompts: list[Sequence[TokenId]] = []
        for prompt in body.prompts():
            if isinstance(prompt, str):
                whole = body.add_special_tokens is not False
                prompts.append(self._tokenizer.encode(prompt, add_special_tokens=whole, parse_special=True))
            else:
                self._check_ids(prompt, "prompt")
                prompts.append(prompt)
        return prompts

    def _chat(self, body: ChatBody) -> Sequence[TokenId]:
        prompt = require(self._template, self._model).render(
            body.messages,
            add_generation_prompt=body.add_generation_prompt is not False,
            variables=body.chat_template_kwargs,
        )
        return self._tokenizer.encode_prompt(prompt)

    def _check_ids(self, ids: Sequence[TokenId], field: str) -> None:
        size = self._tokenizer.vocab_size
        wrong = next((one for one in ids if not 0 <= one < size), None)
        if wrong is not None:
            raise invalid(f"{field} has the token id {wrong}; the model's are 0 to {size - 1:,}.", field)


def _job_of(body: GenerationBody, prompts: Sequence[Sequence[TokenId]], form: AnswerFormat) -> BatchJob:
    choices = body.n or 1

    def answer(outputs: Sequence[OutputDelta]) -> Mapping[str, Any]:
        tally = Tally(choices)
        for choice, output in enumerate(outputs):
            tally.note(choice, output)
        answered: dict[str, Any] = json.loads(form.whole(outputs, tally.usage()))
        return answered

    return BatchJob(
        prompts=[prompt for prompt in prompts for _ in range(choices)],
        params=[body.sampling(choice) for _ in prompts for choice in range(choices)],
        body=answer,
        priority=body.priority or 0,
        cache_salt=body.cache_salt or "",
    )
