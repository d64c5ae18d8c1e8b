import json
from typing import Any

import pytest

from chairlift.lab.loads.request import At, ScheduledRequest, Segment
from chairlift.lab.loads.text import Message
from chairlift.lab.targets.bodies import Api, BodyWriter
from chairlift.lab.targets.dialects import OPENAI, of_kind
from chairlift.server.protocol import ChatBody, CompletionBody


def request(**more: Any) -> ScheduledRequest:
    """Of 3 tokens, for an answer of at most 20."""
    return ScheduledRequest(0, At(0), (Segment("own", 0, 3),), 3, 10, 20, **more)


def body(kind: str, api: Api = "completions", prompt: Any = (1, 2, 3), extra: Any = None, **more: Any) -> Any:
    """What is sent to a server of a kind."""
    dialect = of_kind(kind)
    assert dialect is not None
    return json.loads(BodyWriter(api, "m", dialect, extra or {}).encode(request(**more), prompt))


def test_any_server_gets_what_openai_has() -> None:
    """Nothing that a strict server could refuse."""
    assert json.loads(BodyWriter("completions", "m", OPENAI).encode(request(priority=3), "hello")) == {
        "model": "m",
        "prompt": "hello",
        "max_tokens": 20,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_server_that_counts_with_every_chunk_is_asked_to() -> None:
    """By its own field."""
    for kind in ("vllm", "chairlift"):
        assert body(kind)["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert body("llama.cpp")["timings_per_token"] is True


def test_the_end_of_sequence_is_ignored_where_the_load_says_so() -> None:
    """And the server can be told."""
    assert body("vllm")["ignore_eos"] is True
    assert "ignore_eos" not in body("vllm", ignore_eos=False)
    assert "ignore_eos" not in body("tgi")


def test_a_priority_is_sent_where_there_is_one() -> None:
    """A server without priorities might refuse the field, even with a 0."""
    assert body("vllm", priority=2)["priority"] == 2
    assert "priority" not in body("vllm")
    assert "priority" not in body("llama.cpp", priority=2)


def test_a_chat_is_messages() -> None:
    """Turns before the last one are earlier messages."""
    prompt = (Message("user", "a"), Message("assistant", "b"), Message("user", "c"))

    assert body("vllm", "chat", prompt)["messages"] == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    assert body("vllm", "chat", "a")["messages"] == [{"role": "user", "content": "a"}]


def test_extra_fields_are_stronger_and_null_takes_out() -> None:
    """The user knows the server better."""
    sent = body("vllm", extra={"temperature": 0.7, "stream_options": None, "top_p": 0.9})

    assert (sent["temperature"], sent["top_p"]) == (0.7, 0.9)
    assert "stream_options" not in sent


@pytest.mark.parametrize("kind", ["chairlift", "openai"])
def test_our_own_server_takes_what_is_sent(kind: str) -> None:
    """Its protocol refuses fields it does not know, so this would fail on the first."""
    dialect = of_kind(kind)
    assert dialect is not None
    completion = BodyWriter("completions", "m", dialect).encode(request(priority=1), [1, 2, 3])
    chat = BodyWriter("chat", "m", dialect).encode(request(priority=1), (Message("user", "a"),))

    assert CompletionBody.read(completion).prompts() == [[1, 2, 3]]
    assert ChatBody.read(chat).most_tokens() == 20
