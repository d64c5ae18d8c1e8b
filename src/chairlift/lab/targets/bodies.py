"""The bodies of requests, in the dialect of the server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from chairlift.lab.client.options import Prompt
from chairlift.lab.loads.request import ScheduledRequest
from chairlift.lab.targets.dialects import Dialect

Api = Literal["completions", "chat"]


@dataclass(frozen=True, slots=True)
class BodyWriter:
    """Encodes requests."""

    api: Api
    model: str
    dialect: Dialect
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Added to each body, and stronger than what is there; null takes a field out."""

    def encode(self, request: ScheduledRequest, prompt: Prompt) -> bytes:
        """The body of one request: streamed, with usage, greedy unless `extra` says otherwise."""
        return encode({**self.fields(request), **self.prompt_field(prompt), **self.extra})

    def fields(self, request: ScheduledRequest) -> dict[str, Any]:
        """All but the prompt."""
        dialect = self.dialect
        fields: dict[str, Any] = {
            "model": self.model,
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True, **dialect.stream_options},
            **dialect.fields,
        }
        if dialect.ignore_eos and request.ignore_eos:
            fields["ignore_eos"] = True
        if dialect.priority and request.priority:
            fields["priority"] = request.priority
        return fields

    def prompt_field(self, prompt: Prompt) -> dict[str, Any]:
        """The prompt as the endpoint takes it."""
        if self.api == "completions":
            return {"prompt": prompt}
        if isinstance(prompt, str):
            return {"messages": [{"role": "user", "content": prompt}]}
        messages = [message for message in prompt if not isinstance(message, int)]
        return {"messages": [{"role": message.role, "content": message.content} for message in messages]}


def encode(body: Mapping[str, Any]) -> bytes:
    """JSON without what is null."""
    return json.dumps(
        {name: value for name, value in body.items() if value is not None}, separators=(",", ":")
    ).encode()
