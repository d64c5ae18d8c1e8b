"""Bodies of a batch file, understood and answered as the server would."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from chairlift.core.errors import ChairliftError, RequestError, RequestRefused
from chairlift.engine.offline import BatchError, BatchJob
from chairlift.engine.outputs import OutputDelta
from chairlift.server.answers import ChatFormat, CompletionFormat
from chairlift.server.errors import ApiError, from_chairlift, invalid
from chairlift.server.prompts import PromptReader
from chairlift.server.protocol import ChatBody, CompletionBody


class OpenAIBatch:
    """Implements engine.offline.BatchFormat for /v1/completions and /v1/chat/completions.

    Args:
        prompts: understands bodies for the model.
        created: seconds since 1970 that answers carry. Default: the moment each is read.
    """

    def __init__(self, prompts: PromptReader, created: int | None = None) -> None:
        self._prompts = prompts
        self._created = created

    def read(self, custom_id: str, url: str, body: Mapping[str, Any]) -> BatchJob | BatchError:
        """Understand one line; what cannot be becomes the line's error."""
        try:
            return self._read(custom_id, url, json.dumps(body).encode("ascii"))
        except ApiError as error:
            return _batch_error(error)
        except RequestError as error:
            return _batch_error(_told(error))

    def error(self, error: ChairliftError) -> BatchError:
        """A refusal is the request's fault; whatever else ends one is the device's."""
        refused = isinstance(error, RequestRefused)
        return _batch_error(_told(error) if refused else ApiError(500, str(error), code="device_error"))

    def _read(self, custom_id: str, url: str, data: bytes) -> BatchJob:
        created = int(time.time()) if self._created is None else self._created
        form: CompletionFormat | ChatFormat
        body: CompletionBody | ChatBody
        if url == "/v1/completions":
            body = CompletionBody.read(data)
            form = CompletionFormat(f"cmpl-{custom_id}", self._prompts.model_name(body.model), created)
            prompts = self._prompts.completion(body)
        elif url == "/v1/chat/completions":
            body = ChatBody.read(data)
            form = ChatFormat(f"chatcmpl-{custom_id}", self._prompts.model_name(body.model), created)
            prompts = self._prompts.chat(body)
        else:
            raise invalid(f"the url is {url!r}; it must be /v1/completions or /v1/chat/completions.", "url")
        if body.stream:
            raise invalid("a batch does not stream: leave stream out.", "stream")
        n = body.n or 1

        def answer(outputs: Sequence[OutputDelta]) -> Mapping[str, Any]:
            return form.whole(outputs, n)

        return BatchJob(
            prompts=[prompt for prompt in prompts for _ in range(n)],
            params=[body.sampling(choice) for _ in prompts for choice in range(n)],
            body=answer,
            priority=body.priority or 0,
            cache_salt=body.cache_salt or "",
        )


def _told(error: ChairliftError) -> ApiError:
    """What a client of the server would be told; nobody comes back to a file."""
    return from_chairlift(error, lambda: 1)


def _batch_error(error: ApiError) -> BatchError:
    return BatchError(error.status, error.body())
