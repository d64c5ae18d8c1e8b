import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.lab.client import http as module
from chairlift.lab.client.clock import SECOND
from chairlift.lab.client.http import HttpStream, open_session, read_retry_after
from chairlift.lab.client.stopwatch import Stopwatch
from chairlift.records.client import ErrorClass, RequestTrace
from tests.lab.client.harness import Exchange, ManualClock, ScriptedServer, scripted_server, settle, until

WORD = json.dumps({"choices": [{"index": 0, "text": "word", "finish_reason": None}]})
LAST = json.dumps({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})


@dataclass
class Case:
    """A server, a client of it, and a clock."""

    server: ScriptedServer
    stream: HttpStream
    clock: ManualClock

    def send(self, body: bytes = b"{}") -> tuple[Stopwatch, asyncio.Task[None]]:
        """Begin a request."""
        watch = Stopwatch(0, 0, keep_text=True)
        watch.sent = self.clock.now()
        return watch, asyncio.create_task(self.stream.send(body, watch))

    async def exchange(self) -> tuple[Stopwatch, asyncio.Task[None], Exchange]:
        """Begin a request, and read it on the server's side."""
        watch, task = self.send()
        return watch, task, await self.server.next()

    async def ended(self, watch: Stopwatch, task: asyncio.Task[None]) -> RequestTrace:
        """The trace of a request that comes to its end by itself."""
        await until(task.done)
        task.result()
        return watch.trace(self.clock.now())


@asynccontextmanager
async def case(path: str = "/v1/completions") -> AsyncIterator[Case]:
    """A server on a free port, and a client with a clock that moves by hand."""
    clock = ManualClock()
    async with scripted_server() as server, open_session() as session:
        stream = HttpStream(session, server.url + path, clock)
        try:
            yield Case(server, stream, clock)
        finally:
            await stream.close()
            await session.close()
            await settle()


async def test_every_moment_is_taken_when_its_bytes_come() -> None:
    """Written, headers, role, words, end: each at the time the clock showed then."""
    async with case() as it:
        watch, task = it.send()
        await until(lambda: watch.written is not None)
        exchange = await it.server.next()
        it.clock.time = 10
        exchange.begin()
        await until(lambda: watch.first_byte is not None)
        it.clock.time = 20
        exchange.event(json.dumps({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}))
        await until(lambda: watch.first_event is not None)
        for time in (30, 45):
            it.clock.time = time
            count = watch.chunks
            exchange.event(WORD)
            await until(lambda: watch.chunks > count)  # noqa: B023
        it.clock.time = 50
        exchange.event(LAST)
        await until(lambda: watch.finish_reason is not None)
        it.clock.time = 60
        exchange.event("[DONE]")
        await exchange.end()
        trace = await it.ended(watch, task)

    assert (trace.sent, trace.written, trace.first_byte, trace.first_event) == (0, 0, 10, 20)
    assert [chunk.time for chunk in trace.chunks] == [30, 45]
    assert (trace.first_content, trace.last_content, trace.end) == (30, 45, 60)
    assert (trace.status, trace.finish_reason, trace.error, trace.text) == (200, "length", None, "wordword")


async def test_what_is_sent_is_what_was_given() -> None:
    """Body, length and headers; nothing is compressed on the way back."""
    async with case() as it:
        watch, task = it.send(b'{"prompt":"a"}')
        exchange = await it.server.next()
        exchange.begin()
        exchange.event("[DONE]")
        await exchange.end()
        await it.ended(watch, task)

    head = exchange.head.lower()
    assert exchange.body == b'{"prompt":"a"}'
    assert head.startswith("post /v1/completions http/1.1")
    assert "accept-encoding: identity" in head
    assert "content-type: application/json" in head


@settings(max_examples=15)
@given(st.lists(st.integers(min_value=1, max_value=200), max_size=12))
def test_an_answer_is_the_same_however_its_bytes_are_split(cuts: list[int]) -> None:
    """Three chunks and a usage, cut anywhere."""
    usage = json.dumps({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}})
    data = "".join(f"data: {one}\r\n\r\n" for one in (WORD, WORD, WORD, LAST, usage, "[DONE]")).encode()
    places = sorted({0, *(sum(cuts[:n]) % len(data) for n in range(len(cuts))), len(data)})

    async def run() -> RequestTrace:
        async with case() as it:
            watch, task, exchange = await it.exchange()
            exchange.begin()
            for start, stop in itertools.pairwise(places):
                exchange.send(data[start:stop])
                await settle(3)
            await exchange.end()
            return await it.ended(watch, task)

    trace = asyncio.run(run())
    assert (len(trace.chunks), trace.output_tokens, trace.text, trace.error) == (3, 3, "wordwordword", None)


async def test_a_connection_is_used_again_after_a_whole_answer() -> None:
    """Even when its last bytes come after [DONE], and the trace says so."""
    async with case() as it:
        traces = []
        for _ in range(2):
            watch, task, exchange = await it.exchange()
            exchange.begin(transfer_encoding="chunked")
            frame = f"data: {LAST}\n\ndata: [DONE]\n\n".encode()
            exchange.send(b"%x\r\n%b\r\n" % (len(frame), frame))
            traces.append(await it.ended(watch, task))
            exchange.send(b"0\r\n\r\n")
            await until(lambda: not it.stream._tails)

    assert [trace.connection_reused for trace in traces] == [False, True]
    assert it.server.connections == 1
    assert [trace.error for trace in traces] == [None, None]


async def test_any_number_of_requests_is_under_way_at_once() -> None:
    """No pool and no semaphore: the hundred-and-first is not kept waiting."""
    async with case() as it:
        pairs = [it.send() for _ in range(150)]
        exchanges = [await it.server.next() for _ in pairs]
        for exchange in exchanges:
            exchange.begin()
            exchange.event("[DONE]")
            await exchange.end()
        for watch, task in pairs:
            await it.ended(watch, task)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("429 Too Many Requests", ErrorClass.OVERLOADED),
        ("503 Service Unavailable", ErrorClass.OVERLOADED),
        ("400 Bad Request", ErrorClass.REJECTED),
        ("404 Not Found", ErrorClass.REJECTED),
        ("500 Internal Server Error", ErrorClass.SERVER),
        ("502 Bad Gateway", ErrorClass.SERVER),
    ],
)
async def test_a_refusal_is_recorded_with_its_words(status: str, error: ErrorClass) -> None:
    """And is not tried again."""
    async with case() as it:
        watch, task, exchange = await it.exchange()
        exchange.answer(status, '{"error": {"message": "the queue is full"}}', retry_after="7")
        trace = await it.ended(watch, task)

    assert (trace.error, trace.error_message, trace.status) == (error, "the queue is full", int(status[:3]))
    assert trace.retry_after == (7 * SECOND if error is ErrorClass.OVERLOADED else None)
    assert it.server.requests.empty()


async def test_a_refusal_without_words_has_its_status() -> None:
    """An empty body."""
    async with case() as it:
        watch, task, exchange = await it.exchange()
        exchange.answer("503 Service Unavailable", "")
        trace = await it.ended(watch, task)

    assert (trace.error_message, trace.retry_after) == ("status 503 Service Unavailable", None)


async def test_a_redirect_is_not_followed() -> None:
    """A load is for the URL that was given."""
    async with case() as it:
        watch, task, exchange = await it.exchange()
        exchange.answer("307 Temporary Redirect", "", location="http://elsewhere/")
        trace = await it.ended(watch, task)

    assert trace.error is ErrorClass.PROTOCOL
    assert "http://elsewhere/: give that URL" in trace.error_message


async def test_nobody_there_is_a_connect_error() -> None:
    """The port is closed."""
    async with case() as it:
        await it.server.stop()
        watch, task = it.send()
        trace = await it.ended(watch, task)

    assert (trace.error, trace.written, trace.first_byte) == (ErrorClass.CONNECT, None, None)


async def test_a_server_that_hangs_up_without_a_word_broke_the_stream() -> None:
    """The request was written and nothing came."""
    async with case() as it:
        watch, task, exchange = await it.exchange()
        await exchange.end()
        trace = await it.ended(watch, task)

    assert (trace.error, trace.status) == (ErrorClass.BROKEN_STREAM, None)


async def test_a_connection_that_is_reset_in_the_middle_keeps_what_came() -> None:
    """Chunks and their times stay in the trace."""
    async with case() as it:
        watch, task, exchange = await it.exchange()
        exchange.begin(content_length="100000")
        exchange.event(WORD)
        await until(lambda: watch.chunks)
        exchange.reset()
        trace = await it.ended(watch, task)

    assert (trace.error, len(trace.chunks)) == (ErrorClass.BROKEN_STREAM, 1)
    assert trace.error_message.startswith("after 1 chunks: ")


async def test_a_stream_that_just_ends_is_broken() -> None:
    """In order, but with neither a finish reason nor [DONE]."""
    async with case() as it:
        watch, task, exchange = await it.exchange()
        exchange.begin()
        exchange.event(WORD)
        await exchange.end()
        trace = await it.ended(watch, task)

    assert trace.error is ErrorClass.BROKEN_STREAM
    assert "without a finish reason and without [DONE]" in trace.error_message


@pytest.mark.parametrize("tail", ["data: [DONE]\n\n", "data: [DONE]\n", "data: [DONE]", ""])
async def test_a_finish_reason_or_done_is_an_end(tail: str) -> None:
    """Servers differ in how they say goodbye."""
    async with case() as it:
        watch, task, exchange = await it.exchange()
        exchange.begin()
        exchange.event(WORD)
        exchange.event(LAST)
        exchange.send(tail)
        await exchange.end()
        trace = await it.ended(watch, task)

    assert trace.error is None


async def test_an_error_in_the_stream_is_recorded() -> None:
    """The answer began with status 200."""
    async with case() as it:
        watch, task, exchange = await it.exchange()
        exchange.begin()
        exchange.event(WORD)
        exchange.event('{"error": {"message": "out of memory"}}')
        exchange.event("[DONE]")
        trace = await it.ended(watch, task)

    assert (trace.error, trace.error_message, len(trace.chunks)) == (ErrorClass.IN_STREAM, "out of memory", 1)


async def test_an_aborted_answer_is_an_error() -> None:
    """A finish reason that is none."""
    async with case() as it:
        watch, task, exchange = await it.exchange()
        exchange.begin()
        exchange.event(json.dumps({"choices": [{"index": 0, "text": "", "finish_reason": "abort"}]}))
        exchange.event("[DONE]")
        trace = await it.ended(watch, task)

    assert (trace.error, trace.error_message) == (ErrorClass.IN_STREAM, "the answer ended with finish reason abort")


async def test_events_that_are_no_answer_are_a_protocol_error() -> None:
    """Something else lives at that URL."""
    async with case() as it:
        watch, task, exchange = await it.exchange()
        exchange.begin()
        exchange.event("tick")
        trace = await it.ended(watch, task)

    assert trace.error is ErrorClass.PROTOCOL
    assert "tick" in trace.error_message


async def test_bytes_that_are_no_http_are_a_protocol_error() -> None:
    """The port speaks something else."""
    async with case() as it:
        watch, task, exchange = await it.exchange()
        exchange.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        await exchange.end()
        trace = await it.ended(watch, task)

    assert trace.error is ErrorClass.PROTOCOL


async def test_an_answer_that_was_not_streamed_is_one_chunk() -> None:
    """Some servers ignore `stream`."""
    body = {
        "choices": [{"index": 0, "text": "two words", "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    async with case() as it:
        watch, task, exchange = await it.exchange()
        exchange.answer("200 OK", json.dumps(body))
        trace = await it.ended(watch, task)

    assert [chunk.tokens for chunk in trace.chunks] == [2]
    assert (trace.error, trace.text) == (None, "two words")


async def test_a_page_of_html_is_a_protocol_error() -> None:
    """With status 200."""
    async with case() as it:
        watch, task, exchange = await it.exchange()
        exchange.answer("200 OK", "<html></html>", content_type="text/html")
        trace = await it.ended(watch, task)

    assert trace.error is ErrorClass.PROTOCOL


async def test_a_cancelled_request_hangs_up_at_once() -> None:
    """The server must see it, so that it stops computing."""
    async with case() as it:
        watch, task, exchange = await it.exchange()
        exchange.begin()
        exchange.event(WORD)
        await until(lambda: watch.chunks)
        task.cancel()
        await until(task.done)

        assert task.cancelled()
        await until(exchange.reader.at_eof)


async def test_a_client_without_file_descriptors_blames_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """EMFILE says nothing about the target."""

    async def no_files(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    async with case() as it:
        monkeypatch.setattr("aiohttp.connector.aiohappyeyeballs.start_connection", no_files)
        watch, task = it.send()
        trace = await it.ended(watch, task)

    assert trace.error is ErrorClass.CLIENT
    assert "EMFILE" in trace.error_message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "120"}, 120),
        ({"Retry-After": " 0.5 "}, 0.5),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT", "Date": "Fri, 31 Dec 1999 23:59:49 GMT"}, 10),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:49 GMT", "Date": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-1"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    """A date counts from the server's own clock, never from ours."""
    assert read_retry_after(headers) == (None if seconds is None else seconds * SECOND)


async def test_a_tail_that_does_not_end_is_given_up() -> None:
    """A server that keeps the connection open after [DONE] costs a connection, and nobody's time."""
    async with case() as it:
        watch, task, exchange = await it.exchange()
        exchange.begin(content_length="100000")
        exchange.event(LAST)
        exchange.event("[DONE]")
        trace = await it.ended(watch, task)
        assert trace.error is None
        [tail] = it.stream._tails
        exchange.reset()
        await until(tail.done)

    assert tail.exception() is None


def test_idle_connections_are_given_up_before_servers_do() -> None:
    """Uvicorn closes them after 5 s."""
    assert module._KEEP_ALIVE < 5


async def test_limits_are_off() -> None:
    """Neither connections nor times are limited by the library: the load and the watchdog alone do that."""
    async with open_session() as session:
        connector = session.connector

        assert isinstance(connector, aiohttp.TCPConnector)
        assert (connector.limit, connector.limit_per_host) == (0, 0)
        assert session.timeout == aiohttp.ClientTimeout(total=None)
