"""The routes over real sockets, on a fake runner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from chairlift import __version__
from chairlift.core.config import SchedulerConfig
from chairlift.server.config import ServerConfig
from tests.server.harness import GatedRunner, LiveServer, events, wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """One server for the tests that leave nothing behind."""
    with LiveServer(SchedulerConfig(max_model_len=512), ServerConfig(port=0, max_body_size=20_000)) as live:
        yield live


def text_of(answer: dict[str, Any]) -> str:
    """The text of a whole completion."""
    text: str = answer["choices"][0]["text"]
    return text


def test_a_completion_has_text_reason_and_usage(server: LiveServer) -> None:
    """Absent max_tokens means 16; usage counts prompt and answer; nothing of it was in the cache."""
    answer = server.complete(prompt="A first prompt").json()

    assert answer["object"] == "text_completion"
    assert answer["model"] == "fake"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert len(text_of(answer)) == 16
    assert answer["usage"] == {
        "prompt_tokens": 14,
        "completion_tokens": 16,
        "total_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_cached_prompt_tokens_are_in_the_usage(server: LiveServer) -> None:
    """The same prompt again finds its full blocks: usage.prompt_tokens_details says how many tokens."""
    prompt = "a prompt of more than two blocks of sixteen tokens"
    first, second = (server.complete(prompt=prompt).json() for _ in range(2))

    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 48
    assert text_of(second) == text_of(first)


def test_a_stream_says_the_same_as_a_whole_answer(server: LiveServer) -> None:
    """Joined chunks are the text; only the last has a finish_reason; with include_usage a chunk of its own follows."""
    whole = server.complete(prompt="stream me", max_tokens=24).json()
    response = server.complete(
        prompt="stream me",
        max_tokens=24,
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
    )
    *chunks, last = events(response)

    assert response.headers["content-type"].startswith("text/event-stream")
    assert "".join(text_of(chunk) for chunk in chunks) == text_of(whole)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


def test_every_chunk_counts_where_that_is_asked_for(server: LiveServer) -> None:
    """continuous_usage_stats, as vLLM has it: the tokens so far in each chunk, up to the total."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, last = events(server.complete(prompt="count me", max_tokens=12, stream=True, stream_options=options))
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]

    assert counts == sorted(counts)
    assert counts[-1] == last["usage"]["completion_tokens"] == 12
    assert all(chunk["usage"]["prompt_tokens"] == last["usage"]["prompt_tokens"] for chunk in chunks)


def test_every_token_is_a_chunk_of_its_own_while_the_client_keeps_up() -> None:
    """A reader that waits for each step gets that step's token, not later ones."""
    with (
        LiveServer(runner=GatedRunner()) as live,
        live.http.stream(
            "POST", "/v1/completions", json={"prompt": "abc", "max_tokens": 3, "stream": True}
        ) as response,
    ):
        lines = (line for line in response.iter_lines() if line)
        for _ in range(3):
            live.runner.allow()
            assert next(lines).startswith("data: {")
        assert next(lines) == "data: [DONE]"


def test_a_chat_answer_has_a_message(server: LiveServer) -> None:
    """The prompt is what the chat template makes of the messages."""
    answer = server.chat(messages=[{"role": "user", "content": "Hi"}], max_tokens=4).json()

    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert len(answer["choices"][0]["message"]["content"]) == 4
    assert answer["usage"]["prompt_tokens"] == len("user: Hi\nassistant:")


def test_the_role_comes_with_the_first_content(server: LiveServer) -> None:
    """No chunk without content comes first: it would stop a client's clock before there is a token."""
    chunks = events(server.chat(stream=True, max_tokens=30))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]

    assert deltas[0]["role"] == "assistant"
    assert deltas[0]["content"]
    assert all("role" not in delta for delta in deltas[1:])


def test_absent_max_tokens_in_a_chat_runs_to_the_models_length(server: LiveServer) -> None:
    """Without max_tokens a chat may fill max_model_len; max_completion_tokens wins over max_tokens."""
    free = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}).json()
    capped = server.chat(max_tokens=9, max_completion_tokens=5).json()

    assert free["usage"]["total_tokens"] == 512
    assert free["choices"][0]["finish_reason"] == "length"
    assert capped["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize(
    ("prompt", "choices", "tokens"),
    [
        ("abc", 1, 3),
        (["abc"], 1, 3),
        (["abc", "de"], 2, 5),
        ([97, 98, 99], 1, 3),
        ([[97, 98, 99], [100]], 2, 4),
    ],
)
def test_a_prompt_is_text_or_token_ids_one_or_several(
    server: LiveServer, prompt: object, choices: int, tokens: int
) -> None:
    """A string, a list of strings, token ids, or a list of them: each prompt is a choice, in its order."""
    answer = server.complete(prompt=prompt).json()

    assert [choice["index"] for choice in answer["choices"]] == list(range(choices))
    assert answer["usage"]["prompt_tokens"] == tokens
    assert answer["choices"][0]["text"] == server.complete(prompt="abc").json()["choices"][0]["text"]


@pytest.mark.parametrize("stream", [False, True])
def test_n_draws_several_answers_from_one_prompt(server: LiveServer, *, stream: bool) -> None:
    """n=3: three choices, the prompt counted once, the answers' tokens all counted."""
    body = {"n": 3, "max_tokens": 5, "prompt": ["abc", "de"]}
    if stream:
        *chunks, last = events(server.complete(stream=True, stream_options={"include_usage": True}, **body))
        texts = [
            "".join(text_of(chunk) for chunk in chunks if chunk["choices"][0]["index"] == index) for index in range(6)
        ]
        usage = last["usage"]
    else:
        answer = server.complete(**body).json()
        texts, usage = [choice["text"] for choice in answer["choices"]], answer["usage"]

    assert len(texts) == 6
    assert texts[0] == texts[1] == texts[2] != texts[3]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (5, 30)


def test_a_stop_string_ends_the_answer(server: LiveServer) -> None:
    """The text ends before the stop string, or after it with include_stop_str_in_output; stop_reason names it."""
    text = text_of(server.complete(prompt="stop").json())
    stop = text[5:7]

    cut = server.complete(prompt="stop", stop=stop).json()["choices"][0]
    kept = server.complete(prompt="stop", stop=[stop], include_stop_str_in_output=True).json()["choices"][0]

    assert (cut["text"], cut["finish_reason"], cut["stop_reason"]) == (text[: text.index(stop)], "stop", stop)
    assert kept["text"] == cut["text"] + stop


def test_vllms_fields_work_at_the_top_level(server: LiveServer) -> None:
    """stop_token_ids, min_tokens, ignore_eos, top_k, priority, cache_salt are taken; a stop token ends the answer."""
    text = text_of(server.complete(prompt="more").json())
    more = {"top_k": 5, "ignore_eos": True, "priority": -1, "cache_salt": "mine", "skip_special_tokens": False}

    cut = server.complete(prompt="more", stop_token_ids=[ord(text[3])], **more).json()["choices"][0]

    assert cut["text"] == text[: text.index(text[3])]
    assert (cut["finish_reason"], cut["stop_reason"]) == ("stop", ord(text[3]))


def test_control_tokens_in_text_are_characters_unless_the_caller_says_otherwise(server: LiveServer) -> None:
    """<end> is five characters, or with parse_special one token; in a chat it is characters too."""
    plain = server.complete(prompt="a<end>").json()["usage"]["prompt_tokens"]
    parsed = server.complete(prompt="a<end>", parse_special=True).json()["usage"]["prompt_tokens"]
    messages = [{"role": "user", "content": "<end>"}]
    chats = [
        server.chat(messages=messages, parse_special=flag).json()["usage"]["prompt_tokens"] for flag in (False, True)
    ]

    assert (plain, parsed) == (6, 2)
    assert chats[0] - chats[1] == 4


def test_cache_salt_keeps_prompts_apart(server: LiveServer) -> None:
    """Requests of different salt share no blocks."""
    prompt = "another prompt of more than two blocks of tokens"
    cached = [
        server.complete(prompt=prompt, cache_salt=salt).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        for salt in ("one", "two", "one")
    ]

    assert cached[:2] == [0, 0]
    assert cached[2] > 0


def test_harmless_fields_of_clients_are_accepted(server: LiveServer) -> None:
    """user, metadata and the like, and neutral values of what is not supported, change nothing."""
    plain = server.complete(prompt="same").json()
    decorated = server.complete(
        prompt="same", user="me", metadata={"a": "b"}, store=False, logprobs=None, echo=False, best_of=1, suffix=None
    )

    assert decorated.status_code == 200
    assert text_of(decorated.json()) == text_of(plain)
    tools_free = {"tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "logprobs": False}
    assert server.chat(**tools_free, service_tier="auto", parallel_tool_calls=True).status_code == 200


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("/v1/completions", {"echo": True}, "echo", "not supported"),
    ("/v1/completions", {"logprobs": 0}, "logprobs", "not supported"),
    ("/v1/completions", {"best_of": 3}, "best_of", "not supported"),
    ("/v1/completions", {"suffix": "end"}, "suffix", "not supported"),
    ("/v1/completions", {"max_token": 3}, "max_token", "Did you mean max_tokens?"),
    ("/v1/completions", {"xyzzy": 3}, "xyzzy", "no field"),
    ("/v1/completions", {"temperature": -1}, "temperature", "must not be negative"),
    ("/v1/completions", {"temperature": "hot"}, "temperature", "'hot'"),
    ("/v1/completions", {"top_p": 0}, "top_p", "above 0"),
    ("/v1/completions", {"max_tokens": 0}, "max_tokens", "at least 1"),
    ("/v1/completions", {"max_tokens": "5"}, "max_tokens", "valid integer"),
    ("/v1/completions", {"max_tokens": True}, "max_tokens", "valid integer"),
    ("/v1/completions", {"n": 0}, "n", "greater than or equal to 1"),
    ("/v1/completions", {"n": 1000}, "n", "128 are the most"),
    ("/v1/completions", {"stop": 5}, "stop", "a string or a list of strings"),
    ("/v1/completions", {"stop": ""}, "stop", "at least one character"),
    ("/v1/completions", {"stop": ["x"] * 65}, "stop", "64 are the most"),
    ("/v1/completions", {"stop_token_ids": [999]}, "stop_token_ids", "0 to 256"),
    ("/v1/completions", {"prompt": [1, 999]}, "prompt", "token id 999"),
    ("/v1/completions", {"prompt": [-1]}, "prompt", "token id -1"),
    ("/v1/completions", {"prompt": []}, "prompt", "at least one prompt"),
    ("/v1/completions", {"prompt": ""}, "prompt", "no tokens"),
    ("/v1/completions", {"prompt": {"a": 1}}, "prompt", "a string, a list of strings"),
    ("/v1/completions", {"prompt": ["a", 1]}, "prompt", "a string, a list of strings"),
    ("/v1/completions", {"stream_options": {}}, "stream_options", "set stream to true"),
    (
        "/v1/completions",
        {"stream": True, "stream_options": {"usage_of_each_token": True}},
        "stream_options.usage_of_each_token",
        "not supported",
    ),
    ("/v1/completions", {"max_tokens": 5000}, "prompt", "the longest sequence allowed is 512"),
    ("/v1/chat/completions", {"tools": [{"type": "function"}]}, "tools", "not supported"),
    ("/v1/chat/completions", {"response_format": {"type": "json_object"}}, "response_format", "not supported"),
    ("/v1/chat/completions", {"logprobs": True}, "logprobs", "not supported"),
    ("/v1/chat/completions", {"top_logprobs": 3}, "top_logprobs", "not supported"),
    ("/v1/chat/completions", {"messages": "Hi"}, "messages", "a list of messages"),
    ("/v1/chat/completions", {"messages": [{"content": "Hi"}]}, "messages", "no role"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages",
        "text parts only",
    ),
]


@pytest.mark.parametrize(
    ("path", "fields", "param", "said"), REFUSED, ids=[f"{r[2]}-{n}" for n, r in enumerate(REFUSED)]
)
def test_what_cannot_be_is_refused_with_a_400_that_names_the_field(
    server: LiveServer, path: str, fields: dict[str, Any], param: str, said: str
) -> None:
    """Never a 422, never silently something else: the field, what is wrong with it, what would do."""
    base = {"prompt": "abc"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "Hi"}]}

    response = server.post(path, {**base, **fields})

    error = response.json()["error"]
    assert response.status_code == 400
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert said in error["message"]


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "EOF"), (b"{", "EOF"), (b"[1]", "object"), (b'{"prompt": "\\ud800"}', "hex escape"), (b"\xff", "expected")],
)
def test_a_body_that_is_no_json_object_is_a_400(server: LiveServer, content: bytes, said: str) -> None:
    """Broken JSON, half a surrogate pair, another type: the message says where."""
    response = server.http.post("/v1/completions", content=content)

    assert response.status_code == 400
    assert said in response.json()["error"]["message"]


def test_an_overlong_body_is_refused_unread(server: LiveServer) -> None:
    """413, and the setting that would let it in."""
    response = server.complete(prompt="x" * 30_000)

    assert response.status_code == 413
    assert "20,000 bytes" in response.json()["error"]["message"]
    assert "--max-body-size" in response.json()["error"]["message"]


def test_missing_fields_are_named(server: LiveServer) -> None:
    """No prompt, no messages: a 400 that says what belongs there."""
    for path, field in (("/v1/completions", "prompt"), ("/v1/chat/completions", "messages")):
        error = server.post(path, {}).json()["error"]
        assert (error["param"], error["code"]) == (field, "missing")


def test_another_model_is_a_404_in_openais_shape(server: LiveServer) -> None:
    """The message names what is served."""
    for response in (server.complete(model="gpt-4"), server.http.get("/v1/models/gpt-4")):
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "model_not_found"
        assert "fake" in response.json()["error"]["message"]


def test_unknown_paths_and_methods_have_openais_shape(server: LiveServer) -> None:
    """404 and 405 come as error objects too, with the path."""
    assert "/v1/nothing" in server.http.get("/v1/nothing").json()["error"]["message"]
    response = server.http.get("/v1/completions")
    assert response.status_code == 405
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert response.headers["allow"] == "POST"


def test_models_lists_what_is_served(server: LiveServer) -> None:
    """One model, with its length limit, also by its name."""
    listed = server.http.get("/v1/models").json()

    assert [model["id"] for model in listed["data"]] == ["fake"]
    assert listed["data"][0] == server.http.get("/v1/models/fake").json()
    assert listed["data"][0]["max_model_len"] == 512


def test_names_can_be_given_and_need_no_escape() -> None:
    """--served-model-name gives several names, slashes included; each is answered under itself."""
    with LiveServer(server=ServerConfig(port=0, served_model_name=("acme/small", "small"))) as live:
        assert live.complete(model="small").json()["model"] == "small"
        assert live.complete().json()["model"] == "acme/small"
        assert live.http.get("/v1/models/acme/small").status_code == 200
        assert live.complete(model="fake").status_code == 404


def test_version_and_schema(server: LiveServer) -> None:
    """/version is the package's; /openapi.json describes the bodies."""
    assert server.http.get("/version").json() == {"version": __version__}
    paths = server.http.get("/openapi.json").json()["paths"]
    schema = paths["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"prompt", "max_tokens", "stream_options"} <= schema["properties"].keys()


def test_a_key_is_asked_for_where_one_is_set() -> None:
    """/v1 needs the key; health and metrics do not."""
    with LiveServer(server=ServerConfig(port=0, api_key="secret")) as live:
        wrong = live.http.get("/v1/models", headers={"authorization": "Bearer other"})
        right = live.http.get("/v1/models", headers={"authorization": "Bearer secret"})

        assert live.http.get("/v1/models").status_code == 401
        assert wrong.json()["error"]["code"] == "invalid_api_key"
        assert right.status_code == 200
        assert live.http.get("/health").status_code == live.http.get("/metrics").status_code == 200


def test_a_model_without_a_chat_template_says_so() -> None:
    """Completions work; a chat is refused with the flag that would help."""
    with LiveServer(with_template=False) as live:
        error = live.chat().json()["error"]

        assert "--chat-template" in error["message"]
        assert live.complete().status_code == 200


def test_a_full_queue_is_a_429_with_the_numbers_and_when_to_come_back() -> None:
    """One runs, one waits, the third is refused: OpenAI's shape, and a Retry-After of whole seconds."""
    config = SchedulerConfig(max_num_seqs=1, max_queued_requests=1)
    with LiveServer(config, runner=GatedRunner()) as live:
        body = {"prompt": "abc", "stream": True}
        with live.raw("/v1/completions", body):
            live.runner.await_step()
            with live.raw("/v1/completions", body):
                wait_until(lambda: live.stats().usage.waiting)

                refused = live.complete()

    assert refused.status_code == 429
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert "1 requests wait already" in refused.json()["error"]["message"]
    assert int(refused.headers["retry-after"]) >= 1


def test_if_one_of_several_is_refused_none_runs() -> None:
    """Three prompts and room for two in the queue: all are refused, and nothing of them stays."""
    with LiveServer(SchedulerConfig(max_queued_requests=2)) as live:
        assert live.complete(prompt=["a", "b", "c"]).status_code == 429
        assert live.stats().usage.waiting == live.stats().usage.running == 0
        assert live.runner.executed == []


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_of_the_device_is_told_and_harms_nobody_else(*, stream: bool) -> None:
    """A request whose row fails gets a 500, or an error event in its stream; the next request is answered."""
    with LiveServer() as live:
        live.service.answer_id = lambda prefix: f"{prefix}-fixed"  # type: ignore[method-assign]
        live.runner.failing["cmpl-fixed-0"] = "a NaN in the logits"

        failed = live.complete(stream=stream)

        if stream:
            assert failed.status_code == 200
            assert [event["error"]["message"] for event in events(failed)] == ["a NaN in the logits"]
        else:
            assert failed.status_code == 500
            assert failed.json()["error"] == {
                "message": "a NaN in the logits",
                "type": "server_error",
                "param": None,
                "code": "device_error",
            }
        assert live.complete().status_code == 200


def test_health_is_red_with_the_cause_when_nothing_can_be_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that breaks down: /health and /ready are 503 with the cause, requests get 503 and when to return."""
    with LiveServer() as live:
        assert live.http.get("/health").status_code == live.http.get("/ready").status_code == 200
        monkeypatch.setattr(live.runner, "execute", lambda _plan: 1 // 0)

        assert live.complete().status_code == 500
        health = live.http.get("/health")

        assert health.status_code == live.http.get("/ready").status_code == 503
        assert health.json()["cause"]
        refused = live.complete()
        assert refused.status_code == 503
        assert refused.headers["retry-after"]


def test_an_unexpected_fault_is_a_500_in_openais_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug is not shown to the client, but named; the server goes on."""
    with LiveServer() as live:
        monkeypatch.setattr(live.service.prompts, "model_name", lambda _name: 1 // 0)
        response = live.complete()
        monkeypatch.undo()

        assert response.status_code == 500
        assert "ZeroDivisionError" in response.json()["error"]["message"]
        assert httpx.get(f"{live.url}/health").status_code == 200
