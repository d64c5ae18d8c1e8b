"""The lab against servers that know better: what it saw, beside what they counted."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import pytest

from chairlift.lab.client.clock import MILLISECOND, SECOND
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.targets.base import TargetInfo
from chairlift.lab.targets.url import UrlTarget
from chairlift.records.client import RequestTrace, ServerSample, TokenSource
from chairlift.runners.openvino.formats import open_checkpoint
from chairlift.text.tokenizer import Tokenizer
from tests.lab.proof.processes import chairlift, llamacpp, server_process, vllm

pytestmark = pytest.mark.model

REQUESTS, PROMPT, OUTPUT = 10, 48, 16
LOAD = f"arrivals=poisson arrivals.rate=8 prompt={PROMPT} output={OUTPUT} count={REQUESTS} seed=3"
VLLM_PYTHON, VLLM_MODEL = "CHAIRLIFT_VLLM_PYTHON", "CHAIRLIFT_VLLM_MODEL"
TTFT_TOLERANCE = 100 * MILLISECOND
"""What may lie between a server's first token and the client's: HTTP and both event loops, on cores that compute the
model meanwhile; and half of what the server took, since a machine that starves one starves both."""


@dataclass(frozen=True)
class Witnessed:
    """One load, as the client saw it and as the server's own counters went."""

    info: TargetInfo
    traces: list[RequestTrace]
    before: ServerSample
    after: ServerSample


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def _drive(url: str, tokenizer: Tokenizer) -> Witnessed:
    target = UrlTarget(url, tokenizer=tokenizer)
    info = await target.open()
    schedule = Schedule(load_from_pairs(LOAD.split()), lambda text: len(tokenizer.encode(text)))
    try:
        async with aclosing(target.run(schedule)) as observations:
            seen = [observation async for observation in observations]
    finally:
        await target.close()
    samples = [one for one in seen if isinstance(one, ServerSample)]
    return Witnessed(info, [one for one in seen if isinstance(one, RequestTrace)], samples[0], samples[-1])


@pytest.fixture(scope="module", params=["chairlift", "llama.cpp", "vllm"])
def witnessed(request: pytest.FixtureRequest, demo_model_path: Path) -> Iterator[Witnessed]:
    """A load against a real server on the demo model."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    ready = "/health"
    if request.param == "chairlift":
        command, ready = chairlift(demo_model_path, port), "/ready"
    elif request.param == "llama.cpp":
        pytest.importorskip("xllamacpp", reason="llama.cpp's server is not installed here: pip install xllamacpp")
        command = llamacpp(demo_model_path, port)
    else:
        python, model = os.environ.get(VLLM_PYTHON), os.environ.get(VLLM_MODEL)
        if not python or not model:
            pytest.skip(f"no vLLM: {VLLM_PYTHON} names its Python, {VLLM_MODEL} a Hugging Face directory")
        command = vllm(python, Path(model), port)
    with server_process(command, url, ready) as found:
        source = open_checkpoint(demo_model_path).tokenizer
        assert not isinstance(source, Path)
        yield asyncio.run(_drive(found, Tokenizer.from_gguf(source)))


def test_a_server_is_known_and_answers_everything(witnessed: Witnessed, request: pytest.FixtureRequest) -> None:
    """By its models and metrics; nothing fails."""
    assert witnessed.info.kind in request.node.name
    assert [trace.error for trace in witnessed.traces] == [None] * REQUESTS


def test_tokens_are_those_the_server_counted(witnessed: Witnessed) -> None:
    """Prompt and output tokens of the traces against the difference of the server's counters: exactly."""
    for name in ("prompt_tokens", "output_tokens"):
        counted = getattr(witnessed.after, name) - getattr(witnessed.before, name)
        assert sum(getattr(trace, name) for trace in witnessed.traces) == counted, name


def test_lengths_are_those_asked_for(witnessed: Witnessed) -> None:
    """By the server's own usage, of every request; answers are as long as max_tokens."""
    assert {(trace.prompt_tokens, trace.output_tokens) for trace in witnessed.traces} == {(PROMPT, OUTPUT)}


def test_every_token_is_seen_when_it_comes(witnessed: Witnessed) -> None:
    """Chunks say how many tokens they carry, by the server's count and not by ours, so times between tokens stand."""
    for trace in witnessed.traces:
        assert {chunk.source for chunk in trace.chunks} <= {TokenSource.RUNNING_COUNT, TokenSource.TOTAL}
        assert sum(chunk.tokens or 0 for chunk in trace.chunks) == trace.output_tokens


def test_the_first_token_comes_after_the_servers_and_soon(witnessed: Witnessed) -> None:
    """Mean time to first token from send: not before the server's own mean, and within the tolerance of it."""
    before, after = witnessed.before, witnessed.after
    if after.ttft_count is None or before.ttft_count is None or after.ttft_sum is None or before.ttft_sum is None:
        pytest.skip(f"{witnessed.info.kind} has no time to first token among its metrics")
    server = (after.ttft_sum - before.ttft_sum) / (after.ttft_count - before.ttft_count)
    waits = [trace.first_content - trace.sent for trace in witnessed.traces if trace.first_content and trace.sent]

    assert len(waits) == after.ttft_count - before.ttft_count == REQUESTS
    assert 0 <= fmean(waits) - server * SECOND <= TTFT_TOLERANCE + server * SECOND / 2
