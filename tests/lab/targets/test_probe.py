import asyncio
import json

import aiohttp
import pytest

from chairlift.core.errors import ConfigError
from chairlift.lab.targets.probe import base_url, guess_lengths, look_at
from tests.lab.client.harness import paged_server, scripted_server

MODELS = json.dumps(
    {"data": [{"id": "small", "owned_by": "vllm", "max_model_len": 4096}, {"id": "large", "owned_by": "vllm"}]}
)


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_the_apis_path_may_be_there_or_not(url: str) -> None:
    """As people copy it from wherever."""
    assert base_url(url) == "http://h:1"


@pytest.mark.parametrize("url", ["h:1", "localhost:8000", "ftp://h", "", "http://"])
def test_what_is_no_url_is_refused(url: str) -> None:
    """With the form that would do."""
    with pytest.raises(ConfigError, match="write http://HOST:PORT"):
        base_url(url)


async def test_a_server_is_looked_at() -> None:
    """Kind, version, first model, longest context and metrics."""
    pages: dict[str, str | tuple[str, str]] = {
        "/v1/models": MODELS,
        "/version": '{"version": "0.33.0"}',
        "/metrics": "vllm:num_requests_running 0\n",
    }
    async with paged_server(pages) as server, aiohttp.ClientSession() as session:
        facts = await look_at(session, f"{server.url}/v1")

    assert (facts.base, facts.dialect.kind, facts.version) == (server.url, "vllm", "0.33.0")
    assert (facts.model, facts.max_model_len) == ("small", 4096)
    assert facts.metrics_url == f"{server.url}/metrics"


async def test_a_bare_server_is_any_openai_server() -> None:
    """No version and no metrics."""
    async with paged_server({"/v1/models": '{"data": [{"id": "m"}]}'}) as server, aiohttp.ClientSession() as session:
        facts = await look_at(session, server.url)

    assert (facts.dialect.kind, facts.version, facts.max_model_len, facts.metrics_url) == ("openai", "", None, None)


async def test_llama_cpp_says_its_context_elsewhere() -> None:
    """In the model's meta."""
    models = '{"data": [{"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 512}}]}'
    async with paged_server({"/v1/models": models}) as server, aiohttp.ClientSession() as session:
        assert (await look_at(session, server.url)).max_model_len == 512


async def test_a_model_can_be_chosen() -> None:
    """Among those that are served."""
    async with paged_server({"/v1/models": MODELS}) as server, aiohttp.ClientSession() as session:
        assert (await look_at(session, server.url, model="large")).model == "large"
        with pytest.raises(ConfigError, match=r"does not serve 'huge'; it has small, large. Change --model"):
            await look_at(session, server.url, model="huge")


async def test_a_server_without_a_list_of_models_needs_to_be_told_one() -> None:
    """Some have only the endpoint."""
    async with paged_server({}) as server, aiohttp.ClientSession() as session:
        with pytest.raises(ConfigError, match=r"status 404 and no list of models.*give --model"):
            await look_at(session, server.url)
        assert (await look_at(session, server.url, model="m")).model == "m"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (("401 Unauthorized", "{}"), "Give --api-key"),
        ("no json", "no list of models"),
        ('{"data": []}', "serves no model"),
    ],
)
async def test_a_list_of_models_that_will_not_do_says_what_would(page: str | tuple[str, str], words: str) -> None:
    """Missing key, something else, or nothing loaded."""
    async with paged_server({"/v1/models": page}) as server, aiohttp.ClientSession() as session:
        with pytest.raises(ConfigError, match=words):
            await look_at(session, server.url)


async def test_nobody_there_is_said_at_once() -> None:
    """With the operating system's words."""
    async with scripted_server() as server:
        url = server.url
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ConfigError, match=r"no server answers at .* Start it, or check the URL"):
            await look_at(session, url)


async def test_the_kind_and_the_metrics_place_can_be_given() -> None:
    """Triton's metrics have a port of their own."""
    pages: dict[str, str | tuple[str, str]] = {"/v1/models": MODELS, "/elsewhere": "nv_inference_count 0\n"}
    async with paged_server(pages) as server, aiohttp.ClientSession() as session:
        elsewhere = f"{server.url}/elsewhere"
        facts = await look_at(session, server.url, kind="triton", metrics_url=elsewhere)
        with pytest.raises(ConfigError, match="--server-kind basic is none of chairlift, vllm"):
            await look_at(session, server.url, kind="basic")

    assert (facts.dialect.kind, facts.metrics_url) == ("triton", elsewhere)


@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_two_short_requests_tell_how_a_server_counts(api: str) -> None:
    """Five tokens around, and three for every two words."""
    async with paged_server({}) as server, aiohttp.ClientSession() as session:

        async def answer() -> None:
            for _ in range(2):
                exchange = await server.next()
                body = json.loads(exchange.body)
                text = body["prompt"] if api == "completions" else body["messages"][0]["content"]
                tokens = 5 + len(text.split()) * 3 // 2
                assert body["max_tokens"] == 1
                exchange.answer("200 OK", json.dumps({"usage": {"prompt_tokens": tokens}}))

        async with asyncio.TaskGroup() as group:
            group.create_task(answer())
            guess = group.create_task(guess_lengths(session, server.url, "m", api))  # type: ignore[arg-type]

    result = guess.result()
    assert result is not None
    assert (result.tokens_per_word, result.overhead) == (1.5, 5)


@pytest.mark.parametrize(
    "page", ["{}", "no json", ("500 Internal Server Error", ""), '{"usage": {"prompt_tokens": 9}}']
)
async def test_a_server_that_does_not_count_is_not_guessed_about(page: str | tuple[str, str]) -> None:
    """Then a word is taken for a token, and the notes say so."""
    async with paged_server({"/": page}) as server, aiohttp.ClientSession() as session:
        assert await guess_lengths(session, f"{server.url}/", "m", "completions") is None
