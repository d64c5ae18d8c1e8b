"""What a line of a batch file means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chairlift.core.errors import RequestError, RequestRefused
from chairlift.core.reasons import Reason
from chairlift.core.request import FinishReason, Refused
from chairlift.engine.offline import BatchError, BatchJob
from chairlift.engine.outputs import OutputDelta
from chairlift.server.batch import OpenAIBatch
from chairlift.server.prompts import PromptReader
from chairlift.text.chat import ChatTemplate
from tests.engine.tiny import byte_tokenizer
from tests.server.harness import TEMPLATE, LiveServer


@pytest.fixture(scope="module")
def form() -> OpenAIBatch:
    """For a model named fake."""
    tokenizer = byte_tokenizer()
    template = ChatTemplate(TEMPLATE, tokenizer, source="test")
    return OpenAIBatch(PromptReader(tokenizer, template, ("fake",), 128), created=7)


def job(form: OpenAIBatch, url: str, **body: Any) -> BatchJob:
    """A line that is in order."""
    read = form.read("id", url, body)
    assert isinstance(read, BatchJob)
    return read


def whole(text: str) -> OutputDelta:
    """A complete answer of as many tokens as letters."""
    return OutputDelta("id#0", text, tuple(text.encode()), 3, 0, len(text), FinishReason.LENGTH)


def test_a_completion_is_read_with_its_parameters(form: OpenAIBatch) -> None:
    """Prompts times n, each with its parameters; the scheduler's extras are carried."""
    read = job(form, "/v1/completions", prompt=["abc", "de"], n=2, max_tokens=9, seed=5, priority=3, cache_salt="s")

    assert [bytes(prompt) for prompt in read.prompts] == [b"abc", b"abc", b"de", b"de"]
    assert [params.seed for params in read.params] == [5, 6, 5, 6]
    assert {params.max_tokens for params in read.params} == {9}
    assert (read.priority, read.cache_salt) == (3, "s")


def test_a_chat_is_read_through_its_template(form: OpenAIBatch) -> None:
    """As the server does it."""
    read = job(form, "/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}])

    assert bytes(read.prompts[0]) == b"user: Hi\nassistant:"
    assert read.params[0].max_tokens is None


def test_the_body_of_an_answer_is_the_servers(form: OpenAIBatch) -> None:
    """The same request over HTTP gives the same body, but for id and time."""
    with LiveServer() as server:
        served = server.complete(prompt="abc", max_tokens=5).json()
    text = served["choices"][0]["text"]

    body = job(form, "/v1/completions", prompt="abc", max_tokens=5, temperature=0).body([whole(text)])

    assert json.loads(json.dumps(body)) == {**served, "id": "cmpl-id", "created": 7}


@pytest.mark.parametrize(
    ("url", "body", "status", "said"),
    [
        ("/v1/embeddings", {"input": "x"}, 400, "/v1/chat/completions"),
        ("/v1/completions", {}, 400, "prompt is missing"),
        ("/v1/completions", {"prompt": "a", "stream": True}, 400, "does not stream"),
        ("/v1/completions", {"prompt": "a", "model": "other"}, 404, "there is fake"),
        ("/v1/completions", {"prompt": "a", "temperature": -1}, 400, "temperature is -1"),
        ("/v1/completions", {"prompt": "a\ud800"}, 400, "cannot be read"),
        ("/v1/chat/completions", {"messages": [{}]}, 400, "no role"),
    ],
)
def test_what_cannot_be_is_the_lines_error(
    form: OpenAIBatch, url: str, body: dict[str, Any], status: int, said: str
) -> None:
    """As HTTP would say it; the other lines are not concerned."""
    read = form.read("id", url, body)

    assert isinstance(read, BatchError)
    assert read.status == status
    assert said in read.body["error"]["message"]


def test_a_refusal_is_the_requests_fault_and_a_failure_the_devices(form: OpenAIBatch) -> None:
    """400 with the scheduler's numbers, 500 with the device's words."""
    refused = form.error(RequestRefused(Refused("id", Reason.NEVER_FITS, "needs 63 of 50", 63, 50, "num_kv_blocks")))
    failed = form.error(RequestError("a NaN in the logits"))

    assert (refused.status, refused.body["error"]["message"]) == (400, "needs 63 of 50")
    assert (failed.status, failed.body["error"]["code"]) == (500, "device_error")
