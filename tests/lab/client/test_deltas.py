import json
from typing import Any

import pytest

from chairlift.lab.client.deltas import Delta, NotAnAnswer, read_error_body, read_event
from chairlift.lab.client.sse import ServerSentEvent


def read(body: Any, name: bytes = b"") -> Delta:
    """Read a body as an event."""
    return read_event(ServerSentEvent(json.dumps(body).encode(), name))


def chat(**delta: Any) -> dict[str, Any]:
    """Make a chunk of a chat."""
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"choices": [{"index": 0, "text": "word", "finish_reason": None}]}, "word"),
        (chat(content="word"), "word"),
        (chat(role="assistant", content="word"), "word"),
        (chat(content=[{"type": "text", "text": "wo"}, {"type": "text", "text": "rd"}]), "word"),
        (chat(refusal="no"), "no"),
        (chat(reasoning_content="hm"), ""),
        (chat(content=None, reasoning="hm"), ""),
        (chat(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}]), ""),
        ({"choices": [{"index": 0, "text": "", "token_ids": [7]}]}, ""),
        ({"choices": [{"index": 0, "message": {"role": "assistant", "content": "word"}}]}, "word"),
    ],
)
def test_generated_content_is_told_in_every_form(body: Any, text: str) -> None:
    """Text, parts, refusals, reasoning, tool calls and bare token ids; reasoning is not part of the answer's text."""
    delta = read(body)

    assert (delta.choices, delta.content, delta.text) == (True, True, text)


@pytest.mark.parametrize(
    "body",
    [
        chat(role="assistant"),
        chat(role="assistant", content=""),
        chat(content=None, tool_calls=[], reasoning_content=None),
        chat(),
        {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]},
        {"choices": [{"index": 0, "text": "", "token_ids": []}]},
    ],
)
def test_roles_and_empty_deltas_are_no_content(body: Any) -> None:
    """What stops nobody's clock."""
    delta = read(body)

    assert (delta.choices, delta.content) == (True, False)


def test_a_chunk_of_usage_alone_is_no_content() -> None:
    """The last chunk has counts and no choices."""
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 8}}

    delta = read({"choices": [], "usage": usage})

    assert delta == Delta(prompt_tokens=9, cached_tokens=8, output_tokens=4)


def test_a_running_count_comes_with_a_chunk() -> None:
    """With vLLM's continuous_usage_stats and llama.cpp's timings_per_token."""
    vllm = {"choices": [{"index": 0, "text": "a"}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    llama = {"choices": [{"index": 0, "delta": {"content": "a"}}], "timings": {"prompt_n": 3, "predicted_n": 2}}

    assert (read(vllm).output_tokens, read(llama).output_tokens) == (2, 2)


def test_a_null_usage_counts_nothing() -> None:
    """With include_usage every chunk before the last has a null there."""
    assert read({"choices": [{"index": 0, "text": "a"}], "usage": None}).output_tokens is None


def test_token_ids_and_finish_reason_are_kept() -> None:
    """As the target gives them."""
    delta = read({"choices": [{"index": 0, "text": "ab", "token_ids": [1, 2], "finish_reason": "stop"}]})

    assert (delta.token_ids, delta.finish_reason) == ((1, 2), "stop")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "out of memory", "code": 500}}, "out of memory"),
        ({"error": "out of memory"}, "out of memory"),
        ({"object": "error", "message": "out of memory", "type": "BadRequestError"}, "out of memory"),
        ({"error": {"error": {"message": "out\nof   memory"}}}, "out of memory"),
        ({"error": {"code": 3}}, '{"code": 3}'),
        ({"error": [{"msg": "a"}, {"msg": "b"}]}, "a; b"),
    ],
)
def test_an_error_in_the_stream_is_told_in_every_form(body: Any, message: str) -> None:
    """The servers' various ways of giving up in the middle."""
    assert read(body).error == message


def test_an_event_named_error_is_one_whatever_it_holds() -> None:
    """JSON or not."""
    assert read({"message": "gone"}, b"error").error == "gone"
    assert read_event(ServerSentEvent(b"it broke", b"error")).error == "it broke"


@pytest.mark.parametrize("data", [b"no json", b"\xff", b"[1]", b"3", b'{"hello": 1}'])
def test_what_is_not_of_this_api_is_refused(data: bytes) -> None:
    """With what came, shortened."""
    with pytest.raises(NotAnAnswer):
        read_event(ServerSentEvent(data))


def test_a_long_message_is_shortened() -> None:
    """A record is no place for a page of HTML."""
    assert len(read_error_body(b"<html>" + b"x" * 10_000)) == 500


def test_the_message_of_an_error_body_is_found_or_the_body_shown() -> None:
    """JSON in OpenAI's or FastAPI's form, or whatever there is."""
    assert read_error_body(b'{"error": {"message": "too long"}}') == "too long"
    assert read_error_body(b'{"detail": [{"msg": "field required"}]}') == "field required"
    assert read_error_body(b"Bad Gateway") == "Bad Gateway"
    assert read_error_body(b"") == ""
