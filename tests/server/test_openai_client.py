"""The official client against the running server: what its users meet."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from chairlift.core.config import SchedulerConfig
from tests.server.harness import GatedRunner, LiveServer, wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """One server for the tests that leave nothing behind."""
    with LiveServer(SchedulerConfig(max_model_len=512)) as live:
        yield live


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    """The client as its documentation shows it; refusals are not retried."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_a_completion(client: openai.OpenAI) -> None:
    """completions.create: text, reason, usage with cached tokens, and the request's id."""
    answer = client.completions.create(model="fake", prompt="Once", max_tokens=7)

    assert len(answer.choices[0].text) == 7
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 7)
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    assert answer._request_id == answer.id


def test_a_chat(client: openai.OpenAI) -> None:
    """chat.completions.create: a message of the assistant."""
    answer = client.chat.completions.create(
        model="fake", messages=[{"role": "user", "content": "Hi"}], max_completion_tokens=6
    )

    assert answer.choices[0].message.role == "assistant"
    assert len(answer.choices[0].message.content or "") == 6


def test_a_stream_with_usage(client: openai.OpenAI) -> None:
    """Streamed chunks join to the same text; the last chunk has the usage."""
    whole = client.chat.completions.create(model="fake", messages=[{"role": "user", "content": "Hi"}], max_tokens=20)
    chunks = list(
        client.chat.completions.create(
            model="fake",
            messages=[{"role": "user", "content": "Hi"}],
            max_tokens=20,
            stream=True,
            stream_options={"include_usage": True},
        )
    )

    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 20


def test_extra_body_reaches_vllms_fields(client: openai.OpenAI) -> None:
    """What extra_body holds arrives at the top level and counts."""
    text = client.completions.create(model="fake", prompt="Once", max_tokens=7).choices[0].text

    cut = client.completions.create(
        model="fake", prompt="Once", max_tokens=7, extra_body={"stop_token_ids": [ord(text[2])], "top_k": 3}
    )

    assert cut.choices[0].text == text[: text.index(text[2])]
    assert cut.choices[0].finish_reason == "stop"


def test_the_models_are_listed(client: openai.OpenAI) -> None:
    """models.list and models.retrieve."""
    assert [model.id for model in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").owned_by == "chairlift"


def test_a_request_that_can_never_fit_is_a_bad_request_with_the_numbers(client: openai.OpenAI) -> None:
    """BadRequestError: the scheduler's own numbers, and which flag would help."""
    with pytest.raises(openai.BadRequestError, match=r"4 tokens \+ max_tokens 600 makes 604.*512.*--max-model-len 604"):
        client.completions.create(model="fake", prompt="Once", max_tokens=600)


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    """NotFoundError with a code for programs."""
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="other", prompt="Once")

    assert caught.value.code == "model_not_found"


def test_an_unsupported_field_is_a_bad_request_that_names_it(client: openai.OpenAI) -> None:
    """BadRequestError with the field as its param."""
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="fake", prompt="Once", logprobs=3)

    assert caught.value.param == "logprobs"


def test_a_full_queue_is_a_rate_limit_error_with_the_numbers() -> None:
    """RateLimitError: how many wait, which flag, and Retry-After, which the client honours when it retries."""
    config = SchedulerConfig(max_num_seqs=1, max_queued_requests=1)
    with LiveServer(config, runner=GatedRunner()) as server:
        body = {"prompt": "abc", "stream": True}
        with server.raw("/v1/completions", body):
            server.runner.await_step()
            with (
                server.raw("/v1/completions", body),
                openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
            ):
                wait_until(lambda: server.stats().usage.waiting)
                with pytest.raises(openai.RateLimitError, match=r"1 requests wait already.*--max-queued-req") as caught:
                    client.completions.create(model="fake", prompt="Once")

    assert int(caught.value.response.headers["retry-after"]) >= 1


def test_a_failure_in_a_stream_is_raised_to_its_reader() -> None:
    """An error event in the stream becomes an APIError with the device's message."""
    with LiveServer() as server, openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        server.service.answer_id = lambda prefix: f"{prefix}-fixed"  # type: ignore[method-assign]
        server.runner.failing["cmpl-fixed-0"] = "a NaN in the logits"

        with pytest.raises(openai.APIError, match="a NaN in the logits"):
            list(client.completions.create(model="fake", prompt="Once", stream=True))


def test_closing_a_stream_early_frees_its_blocks() -> None:
    """A user who breaks out of the loop and closes the stream leaves nothing behind."""
    with (
        LiveServer(runner=GatedRunner()) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        server.runner.allow()
        with client.completions.create(model="fake", prompt="Once", max_tokens=100, stream=True) as stream:
            assert next(iter(stream)).choices[0].text
        server.await_abandoned()
        server.runner.allow()
        server.departures.next()

        assert server.stats().usage.kv_used == 0
