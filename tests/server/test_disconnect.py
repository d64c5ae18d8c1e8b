"""T10: a client that leaves gives its blocks back within one step, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chairlift.core.config import PolicyName, SchedulerConfig
from chairlift.core.request import FinishReason
from tests.server.harness import GatedRunner, LiveServer, wait_until

PATHS = ("/v1/completions", "/v1/chat/completions")
STREAMING = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
EVERY_PATH = pytest.mark.parametrize("path", PATHS, ids=["completions", "chat"])


def body(path: str, text: str, *, stream: bool, **more: object) -> dict[str, object]:
    """A request for text that runs until it is stopped."""
    prompt = {"prompt": text} if path == PATHS[0] else {"messages": [{"role": "user", "content": text}]}
    return {**prompt, "max_tokens": 200, "stream": stream, **more}


@pytest.fixture
def server() -> Iterator[LiveServer]:
    """Two rows, 16 tokens a step, every step held until it is allowed."""
    config = SchedulerConfig(max_num_seqs=1, max_num_batched_tokens=16, max_model_len=512)
    with LiveServer(config, runner=GatedRunner()) as live:
        yield live


def check_nothing_left(server: LiveServer, *, cancelled: int = 1) -> None:
    """All blocks are free, and every accepted request is counted as ended."""
    stats = server.stats()
    assert stats.usage.kv_used == 0
    assert stats.usage.running == stats.usage.waiting == 0
    assert stats.counters.finished[FinishReason.CANCELLED] == cancelled
    assert stats.counters.accepted == sum(stats.counters.finished.values())
    with server.engine.core.together():
        server.engine.core._scheduler.check_integrity()


@STREAMING
@EVERY_PATH
def test_t10_a_client_that_leaves_while_decoding_frees_its_blocks_in_one_step(
    server: LiveServer, path: str, *, stream: bool
) -> None:
    """T10: the step in flight when the client leaves is the last that its sequence takes part in."""
    with server.raw(path, body(path, "a short prompt", stream=stream)):
        server.runner.allow(4)
        for _ in range(5):
            server.runner.await_step()
    server.await_abandoned()

    server.runner.allow()
    left = server.departures.next()

    assert left.finish_reason is FinishReason.CANCELLED
    assert len(server.runner.executed) == 5
    assert server.stats().ledger.tokens.decode > 0
    check_nothing_left(server)


@STREAMING
@EVERY_PATH
def test_t10_a_client_that_leaves_while_prefilling_frees_its_blocks_in_one_step(
    server: LiveServer, path: str, *, stream: bool
) -> None:
    """T10: a prompt in several chunks is given up after the chunk in flight; the rest is never computed."""
    with server.raw(path, body(path, "x" * 100, stream=stream)):
        server.runner.allow()
        for _ in range(2):
            server.runner.await_step()
    server.await_abandoned()

    server.runner.allow()
    left = server.departures.next()

    assert left.finish_reason is FinishReason.CANCELLED
    assert left.output_tokens == 0
    assert server.stats().ledger.tokens.prefill == 32
    check_nothing_left(server)


@STREAMING
@EVERY_PATH
def test_t10_a_client_that_leaves_the_queue_never_runs(server: LiveServer, path: str, *, stream: bool) -> None:
    """T10: a queued, silent request is noticed too: it leaves the queue within a step and the others go on."""
    with server.raw(path, body(path, "runs", stream=True)):
        server.runner.await_step()
        with server.raw(path, body(path, "waits", stream=stream)):
            wait_until(lambda: server.stats().usage.waiting)
        waiting = server.await_abandoned()

        server.runner.allow()
        server.runner.await_step()

        assert server.stats().usage.waiting == 0
        assert server.stats().usage.running == 1
        server.runner.allow()
        left = server.departures.next()
        assert left.request_id == waiting
        assert left.admitted is None
        server.runner.await_step()
    server.await_abandoned()
    server.runner.allow()
    server.departures.next()
    check_nothing_left(server, cancelled=2)


@STREAMING
@pytest.mark.parametrize("policy", ["static", "dynamic"])
def test_t10_a_client_that_leaves_a_batch_that_is_not_full_frees_its_place_without_a_step(
    policy: PolicyName, *, stream: bool
) -> None:
    """T10: nothing runs while a closed batch collects its members, and a leaver is noticed all the same."""
    config = SchedulerConfig(policy=policy, batch_size=4, max_batch_size=4, max_queue_delay=10**15)
    with LiveServer(config, runner=GatedRunner()) as server:
        with server.raw(PATHS[0], body(PATHS[0], "early", stream=stream)):
            wait_until(lambda: server.stats().usage.waiting)

        assert server.departures.next().finish_reason is FinishReason.CANCELLED
        assert server.runner.executed == []
        check_nothing_left(server)


def test_t10_every_choice_of_a_request_is_given_up(server: LiveServer) -> None:
    """T10: several prompts times n make several sequences; all of them end with their one client."""
    with server.raw(PATHS[0], body(PATHS[0], "abc", stream=True, prompt=["one", "two"], n=2)):
        server.runner.await_step()
    for _ in range(4):
        server.await_abandoned()

    server.runner.allow()
    assert {server.departures.next().finish_reason for _ in range(4)} == {FinishReason.CANCELLED}
    check_nothing_left(server, cancelled=4)


def test_a_client_that_leaves_in_the_middle_of_its_body_submits_nothing(server: LiveServer) -> None:
    """A body that never ends is nobody's request."""
    with server.raw(PATHS[0], body(PATHS[0], "abc", stream=False), cut=10):
        pass

    assert server.http.get("/health").status_code == 200
    assert server.stats().counters.accepted == 0
