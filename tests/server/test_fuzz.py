"""Random bodies: every answer is one a client can read, and no request is left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chairlift.core.config import SchedulerConfig
from chairlift.server.config import ServerConfig
from chairlift.server.protocol import ChatBody, CompletionBody
from tests.server.harness import LiveServer

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 40)
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["abc", "user", "system", "\x00", "<end>", "a\ud800", "auto"])
)
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6) | st.just("role"), inner, max_size=4)
    ),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant", "system", "tool"]) | JSON,
            "content": st.text(max_size=20) | JSON,
        },
        optional={"tool_calls": JSON, "name": JSON},
    ),
    max_size=3,
)


def bodies(fields: set[str], required: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Mostly sensible: the required fields, and a few others with any value."""
    others = st.dictionaries(st.sampled_from(sorted(fields)) | st.text(max_size=5), JSON, max_size=4)
    short = st.fixed_dictionaries(required, optional={"max_tokens": st.integers(1, 20)})
    return st.builds(lambda base, more: {**base, **more}, short, others) | st.dictionaries(st.text(max_size=6), JSON)


COMPLETIONS = bodies(
    set(CompletionBody.model_fields) | {"logprobs", "echo", "logit_bias", "best_of"},
    {"prompt": st.text(max_size=20) | st.lists(st.integers(0, 256), max_size=9) | JSON},
)
CHATS = bodies(set(ChatBody.model_fields) | {"tools", "response_format", "functions"}, {"messages": MESSAGES | JSON})
MODEST = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """A small model length, so that no answer is long."""
    config = SchedulerConfig(max_model_len=64)
    with LiveServer(config, ServerConfig(port=0, enable_admin=True, max_choices=8)) as live:
        yield live


def check(response: httpx.Response) -> None:
    """2xx, or an error in OpenAI's shape that is the client's fault."""
    assert response.status_code in {200, 400, 404, 405, 413}, response.text
    if response.status_code != 200:
        error = response.json()["error"]
        assert error["message"]
        assert error.keys() == {"message", "type", "param", "code"}


@MODEST
@given(COMPLETIONS)
def test_no_completion_body_is_a_500(server: LiveServer, body: dict[str, Any]) -> None:
    """An answer or a 4xx that says why."""
    check(server.http.post("/v1/completions", content=json.dumps(body)))


@MODEST
@given(CHATS)
def test_no_chat_body_is_a_500(server: LiveServer, body: dict[str, Any]) -> None:
    """An answer or a 4xx that says why."""
    check(server.http.post("/v1/chat/completions", content=json.dumps(body)))


@settings(MODEST, max_examples=60)
@given(st.sampled_from(["/v1/completions", "/v1/chat/completions", "/admin/policy"]), st.binary(max_size=60))
def test_no_bytes_are_a_500(server: LiveServer, path: str, content: bytes) -> None:
    """Whatever the body is made of."""
    check(server.http.post(path, content=content))


@settings(MODEST, max_examples=100)
@given(
    st.dictionaries(
        st.sampled_from(sorted(SchedulerConfig.__dataclass_fields__)) | st.text(max_size=4), JSON, max_size=3
    )
)
def test_no_policy_is_a_500(server: LiveServer, body: dict[str, Any]) -> None:
    """A switch happens, or a 400 says why not."""
    before = server.http.get("/admin/policy").json()["settings"]
    check(server.http.post("/admin/policy", content=json.dumps(body)))
    server.post("/admin/policy", before)


def test_nothing_is_left_behind(server: LiveServer) -> None:
    """After all that: no request, no block, and the server is well."""
    assert server.stats().usage.running == server.stats().usage.waiting == server.stats().usage.kv_used == 0
    assert server.complete(max_tokens=5).status_code == 200
