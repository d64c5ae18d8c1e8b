"""The whole thing: `chairlift serve` on the demo model, asked by the official client."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

pytestmark = pytest.mark.model

PATIENCE = 120.0
FLAGS = ["--max-model-len", "512", "--num-kv-blocks", "64", "--max-num-batched-tokens", "128", "--threads", "2"]
MODEL = "SmolLM2-135M-Instruct.Q4_1"
QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of France?"}]


class Served:
    """The process and a client of it."""

    def __init__(self, model: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        chairlift = str(Path(sys.executable).with_name("chairlift"))
        command = [chairlift, "serve", str(model), "--port", str(port), *FLAGS]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{port}"
        self.client = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    def await_ready(self) -> None:
        """Until /ready is 200."""
        pause, end = 0.02, time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if httpx.get(f"{self.url}/ready").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(pause)
        self.process.kill()
        pytest.fail(f"not ready: {self.process.communicate()[1]}")

    def end(self) -> tuple[int, str]:
        """SIGTERM; the exit code and the log."""
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, log


@pytest.fixture(scope="module")
def served(demo_model_path: Path) -> Iterator[Served]:
    """One process for all tests of this file; its end is a test of its own."""
    server = Served(demo_model_path)
    server.await_ready()
    with server.process:  # closes its pipes, whoever ended it
        yield server
        server.client.close()
        server.process.kill()


@pytest.fixture
def client(served: Served) -> openai.OpenAI:
    """The official client."""
    return served.client


def test_a_chat_is_answered_sensibly(client: openai.OpenAI) -> None:
    """The model knows its capital, ends by itself, and usage counts the template's tokens."""
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0)

    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 37
    assert answer.usage.completion_tokens < 20


def test_a_stream_says_the_same(client: openai.OpenAI) -> None:
    """Chunks join to the whole answer; the prompt's full block is found in the cache."""
    stream = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, last = list(stream)

    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert last.usage is not None
    assert last.usage.prompt_tokens_details is not None
    assert last.usage.prompt_tokens_details.cached_tokens == 32


def test_a_completion_stops_where_it_is_told(client: openai.OpenAI) -> None:
    """Without a stop it runs to max_tokens; with one it ends before it."""
    whole = client.completions.create(model=MODEL, prompt="The sea is", max_tokens=12, temperature=0)
    words = whole.choices[0].text.split()
    cut = client.completions.create(model=MODEL, prompt="The sea is", max_tokens=12, temperature=0, stop=words[2])

    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 12
    assert cut.choices[0].finish_reason == "stop"
    assert cut.choices[0].text.split() == words[:2]


def test_equal_seeds_give_equal_answers_however_many_run_beside(client: openai.OpenAI) -> None:
    """A seed fixes the answer; the choices of one request differ from each other, and so do other seeds."""

    def ask(seed: int, n: int) -> list[str]:
        answer = client.completions.create(
            model=MODEL, prompt="Once upon a time", max_tokens=12, temperature=1, seed=seed, n=n
        )
        return [choice.text for choice in answer.choices]

    first, again, other = ask(7, 4), ask(7, 2), ask(100, 2)

    assert again == first[:2]
    assert len({*first, *other}) == 6


def test_what_can_never_fit_is_refused_with_the_numbers(client: openai.OpenAI) -> None:
    """BadRequestError from the scheduler's own gate."""
    with pytest.raises(
        openai.BadRequestError, match=r"max_tokens 600 makes 6\d\d; the longest sequence allowed is 512"
    ):
        client.completions.create(model=MODEL, prompt="Once", max_tokens=600)


def test_several_at_once_share_the_steps(served: Served, client: openai.OpenAI) -> None:
    """Eight prompts in one request: fewer steps than eight answers one after the other would take."""

    def steps() -> float:
        found = re.search(r"^chairlift:steps_total\S* (\S+)$", httpx.get(f"{served.url}/metrics").text, re.MULTILINE)
        assert found
        return float(found[1])

    before = steps()
    client.completions.create(model=MODEL, prompt=[f"Number {n} is" for n in range(8)], max_tokens=10, temperature=0)

    assert steps() - before < 20


def test_sigterm_ends_it_well(served: Served) -> None:
    """Exit code 0; the log has memory, policy, address and end, no traceback, and nothing a request."""
    code, log = served.end()

    assert code == 0
    for said in ("KV cache", "policy continuous: --max-num-seqs 32", f"at {served.url}/v1", "shutting down", "ended."):
        assert said in log
    assert "Traceback" not in log
    assert len(log.splitlines()) < 15
