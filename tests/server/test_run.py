"""Start, drain and end of a server."""

from __future__ import annotations

import socket

import httpx
import pytest

from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ConfigError
from chairlift.server.config import ServerConfig
from chairlift.server.run import bind, url
from tests.server.harness import GatedRunner, LiveServer, events, wait_until


def test_a_taken_port_is_refused_with_the_flag_before_anything_is_loaded() -> None:
    """The address is bound first, and the message says --port."""
    with bind(ServerConfig(port=0)) as first:
        first.listen()
        port = first.getsockname()[1]

        with pytest.raises(ConfigError, match=f"--port {port} cannot be had.*another --port"):
            bind(ServerConfig(port=port))


def test_an_unknown_host_is_refused_with_the_flag() -> None:
    """A host that is no address of this machine."""
    with pytest.raises(ConfigError, match="--host"):
        bind(ServerConfig(host="192.0.2.1", port=0))


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "localhost")])
def test_the_url_shown_is_one_that_works(host: str, shown: str) -> None:
    """Port 0 shows the port that was found, and "any address" is shown as this machine's name."""
    with bind(ServerConfig(host=host, port=0)) as listener:
        assert url(listener) == f"http://{shown}:{listener.getsockname()[1]}"


def test_an_ipv6_url_has_brackets() -> None:
    """::1 is written as browsers want it."""
    try:
        listener = bind(ServerConfig(host="::1", port=0))
    except ConfigError:
        pytest.skip("no IPv6 here")
    with listener:
        assert url(listener).startswith("http://[::1]:")


def test_sigterm_lets_running_requests_finish_and_turns_new_ones_away() -> None:
    """While it drains: /health and /ready are 503, new requests get 503 and Retry-After, the old answer is complete."""
    with LiveServer(runner=GatedRunner()) as server:
        with server.http.stream(
            "POST", "/v1/completions", json={"prompt": "abc", "max_tokens": 3, "stream": True}
        ) as response:
            server.runner.await_step()
            server.signal()
            wait_until(lambda: server.service.draining)

            for path in ("/health", "/ready"):
                assert httpx.get(server.url + path).status_code == 503
            refused = httpx.post(server.url + "/v1/completions", json={"prompt": "late"})
            server.runner.open()
            response.read()

        server.join()
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "30"
    assert "shutting down" in refused.json()["error"]["message"]
    assert events(response)[-1]["choices"][0]["finish_reason"] == "length"
    assert server.runner.closed


def test_a_drain_lets_an_unfilled_batch_leave() -> None:
    """Static batching waits for a full batch, but not for clients that will never be let in."""
    with LiveServer(SchedulerConfig(policy="static", batch_size=4)) as server:
        with server.http.stream("POST", "/v1/completions", json={"prompt": "abc", "stream": True}) as response:
            wait_until(lambda: server.stats().usage.waiting)
            server.signal()
            response.read()
        server.join()
    assert events(response)[-1]["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("second_signal", [False, True])
def test_after_the_bound_or_a_second_signal_what_is_left_ends_with_an_error(*, second_signal: bool) -> None:
    """drain_timeout 0, or two signals: the reader gets an error event and not silence."""
    settings = ServerConfig(port=0, drain_timeout=10**12 if second_signal else 0)
    with LiveServer(SchedulerConfig(policy="static", batch_size=2), settings, GatedRunner()) as server:
        with server.http.stream(
            "POST", "/v1/completions", json={"prompt": ["abc", "de"], "max_tokens": 100, "stream": True}
        ) as response:
            server.runner.await_step()
            server.signal()
            if second_signal:
                server.signal()
            wait_until(lambda: server.engine._thread._stop)
            server.runner.allow()
            response.read()
        server.join()
    assert "shut down after" in events(response)[-1]["error"]["message"]


def test_a_whole_answer_cut_short_is_a_503() -> None:
    """A client that does not stream learns of the shutdown by the status."""
    settings = ServerConfig(port=0, drain_timeout=0)
    with (
        LiveServer(server=settings, runner=GatedRunner()) as server,
        server.raw("/v1/completions", {"prompt": "abc"}) as connection,
    ):
        server.runner.await_step()
        server.signal()
        wait_until(lambda: server.engine._thread._stop)
        server.runner.allow()
        said = _read_all(connection)

    assert said.startswith(b"HTTP/1.1 503")
    assert b"shut down after 1 tokens" in said


def _read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65_536):
        parts.append(part)
    return b"".join(parts)
