import asyncio
import json
import subprocess
import sys
from typing import Any

import aiohttp
import pytest

from chairlift.lab.client.clock import MILLISECOND
from chairlift.lab.client.http import HttpStream, open_session
from chairlift.lab.client.null_server import Options, Stream, Wheel, serve
from chairlift.lab.client.stopwatch import Stopwatch
from chairlift.records.client import TokenSource
from tests.lab.client.harness import PATIENCE, ManualClock

POST = b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"


class FakeTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closing = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closing


class Case:
    """A wheel of ten slots, turned by hand."""

    def __init__(self, *, together: bool = False, chunks: int = 3, first: int = 0) -> None:
        self.time = 0
        self.options = Options(chunks=chunks, interval=10 * MILLISECOND, first=first)
        self.wheel = Wheel(self.options.interval, together=together, clock=lambda: self.time)
        self.wheel._due = MILLISECOND

    def connect(self, request: bytes = POST) -> FakeTransport:
        stream, transport = Stream(self.wheel, self.options), FakeTransport()
        stream.connection_made(transport)
        for byte in request:
            stream.data_received(bytes([byte]))
        return transport

    def moments(self, transport: FakeTransport, until: int) -> list[int]:
        """Milliseconds at which something was written."""
        moments = []
        for millisecond in range(1, until + 1):
            before = len(transport.written)
            self.time = millisecond * MILLISECOND
            self.wheel.turn()
            moments += [millisecond] * (len(transport.written) - before)
        return moments


def test_chunks_come_an_interval_apart_from_the_request_on() -> None:
    """Three of them, the first after an interval; the head at once."""
    case = Case()
    transport = case.connect()
    assert len(transport.written) == 1

    assert case.moments(transport, 60) == [10, 20, 30]


def test_streams_keep_their_own_phase() -> None:
    """One that came 4 ms later is served 4 ms later."""
    case = Case()
    case.moments(case.connect(), 4)

    later = case.connect()
    case.time = 4 * MILLISECOND
    assert [moment for moment in case.moments(later, 40) if moment > 4] == [14, 24, 34]


def test_together_all_streams_are_served_in_the_same_slot() -> None:
    """As after a step, whenever they came."""
    case = Case(together=True)
    case.moments(case.connect(), 4)

    later = case.connect()
    assert [moment for moment in case.moments(later, 40) if moment > 4] == [10, 20, 30]


def test_the_first_chunk_may_take_longer() -> None:
    """As a prefill does."""
    case = Case(first=35 * MILLISECOND)

    assert case.moments(case.connect(), 70) == [35, 45, 55]


def test_a_wheel_that_was_held_up_says_by_how_much() -> None:
    """Its own lateness must not be taken for the client's."""
    case = Case(chunks=1)
    case.connect()
    case.time = 13 * MILLISECOND
    case.wheel.turn()

    assert case.wheel.record.lateness == [3 * MILLISECOND]


def test_a_stream_whose_client_left_is_served_no_more() -> None:
    """And forgotten."""
    case = Case()
    stream, transport = Stream(case.wheel, case.options), FakeTransport()
    stream.connection_made(transport)
    stream.data_received(POST)
    stream.connection_lost(None)

    assert case.moments(transport, 30) == []
    assert not any(case.wheel._slots)


def test_nothing_is_written_to_a_connection_that_broke() -> None:
    """Before the event loop says that it is lost: each write would be complained about."""
    case = Case()
    transport = case.connect()
    transport.closing = True

    assert case.moments(transport, 40) == []


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_the_client_reads_what_is_sent(path: str) -> None:
    """Over a real socket: as many chunks as asked for, one token each, and a usage that agrees."""
    server = await serve(Options(chunks=100, interval=MILLISECOND, first=0), "127.0.0.1", 0)
    async with server, open_session() as session, aiohttp.ClientSession() as beside:
        host, port = server.sockets[0].getsockname()[:2]
        stream = HttpStream(session, f"http://{host}:{port}{path}", ManualClock())
        watches = [Stopwatch(index, 0) for index in range(2)]
        for watch in watches:
            await stream.send(b'{"max_tokens": 5}', watch)
        async with beside.get(f"http://{host}:{port}/null/record") as response:
            record = await response.json()

    for watch in watches:
        trace = watch.trace(0)
        assert (trace.error, trace.output_tokens, trace.finish_reason) == (None, 5, "length")
        assert [(chunk.tokens, chunk.source) for chunk in trace.chunks] == [(1, TokenSource.TOTAL)] * 5
    assert watches[1].reused
    assert (record["chunks"], len(record["arrivals"]), record["streams"]) == (10, 2, 1)
    assert len(record["lateness"]) == 10


async def test_pages_for_clients_that_ask() -> None:
    """Models and health; anything else is not there."""
    server = await serve(Options(chunks=1, interval=MILLISECOND, first=0), "127.0.0.1", 0)
    async with server, aiohttp.ClientSession() as session:
        host, port = server.sockets[0].getsockname()[:2]
        base = f"http://{host}:{port}"
        async with session.get(f"{base}/v1/models") as models, session.get(f"{base}/health") as health:
            assert (await models.json())["data"][0]["id"] == "null-model"
            assert health.status == 200
        async with session.get(f"{base}/metrics") as missing:
            assert missing.status == 404


def test_it_runs_as_a_process_of_its_own_until_its_starter_leaves() -> None:
    """It says where it is, and ends when its standard input does."""
    command = [sys.executable, "-m", "chairlift.lab.client.null_server", "--interval", "0.001", "--chunks", "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()

        async def ask() -> str:
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{url}/v1/completions", data=b"{}") as response,
            ):
                return await response.text()

        answer = asyncio.run(ask())
        process.stdin.close()
        assert process.wait(timeout=PATIENCE) == 0

    events = [line.removeprefix("data: ") for line in answer.splitlines() if line]
    assert len(events) == 4
    assert json.loads(events[2])["usage"]["completion_tokens"] == 2
    assert events[3] == "[DONE]"
