"""Disconnects and bodies, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from chairlift.server.connection import EventStream, read_body, sse, while_connected
from chairlift.server.errors import ApiError

pytestmark = pytest.mark.anyio


class Client:
    """The client's end of ASGI: sends parts of a body, then stays until it is told to leave."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = list(parts)
        self.left = asyncio.Event()
        self.got: list[Message] = []

    async def receive(self) -> Message:
        if self._parts:
            part = self._parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._parts)}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.got.append(message)


async def test_a_body_comes_in_parts() -> None:
    """Parts are joined in order."""
    assert await read_body(Client(b"ab", b"", b"c").receive, 3) == b"abc"


async def test_a_body_is_read_no_further_than_its_limit() -> None:
    """413 as soon as the limit is passed; what follows is not asked for."""
    client = Client(b"ab", b"cd", b"ef")

    with pytest.raises(ApiError) as caught:
        await read_body(client.receive, 3)

    assert caught.value.status == 413
    assert await client.receive() == {"type": "http.request", "body": b"ef", "more_body": False}


async def test_who_leaves_in_the_middle_of_a_body_is_gone() -> None:
    """ClientDisconnect, not half a body."""

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientDisconnect):
        await read_body(receive, 3)


async def test_work_that_ends_first_gives_its_result() -> None:
    """The listener is gone afterwards."""
    before = len(asyncio.all_tasks())

    assert await while_connected(Client().receive, asyncio.sleep(0, "done")) == "done"
    assert len(asyncio.all_tasks()) == before


async def test_work_that_fails_raises_its_error() -> None:
    """As if it had been awaited alone."""

    async def fail() -> None:
        raise ValueError("as expected")

    with pytest.raises(ValueError, match="as expected"):
        await while_connected(Client().receive, fail())


async def test_work_is_cancelled_and_over_when_the_client_leaves() -> None:
    """ClientDisconnect comes after the work's own clean-up."""
    client, cleaned = Client(), []

    async def work() -> None:
        try:
            client.left.set()
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    with pytest.raises(ClientDisconnect):
        await while_connected(client.receive, work())
    assert cleaned == [True]


async def test_cancelling_the_handler_cancels_the_work() -> None:
    """A server that does cancel its handlers leaves nothing running."""
    client, started, before = Client(), asyncio.Event(), asyncio.all_tasks()

    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(while_connected(client.receive, work()))
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before


async def test_a_stream_is_sent_and_closed() -> None:
    """Start, each event, an empty end; close() is called once."""
    client, closed = Client(), []

    async def source() -> AsyncIterator[bytes]:
        yield sse(b"1")
        yield sse(b"2")

    stream = EventStream(source(), close=lambda: closed.append(True), headers={"x-request-id": "r"})
    await stream({}, client.receive, client.send)

    assert [message.get("body") for message in client.got] == [None, b"data: 1\n\n", b"data: 2\n\n", b""]
    headers = dict(client.got[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"x-request-id"] == b"r"
    assert b"content-length" not in headers
    assert closed == [True]


async def test_a_silent_stream_is_closed_when_its_client_leaves() -> None:
    """Nothing was sent and nothing would be: the listener notices all the same."""
    client, closed = Client(), []
    client.left.set()

    async def silence() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    await EventStream(silence(), close=lambda: closed.append(True))({}, client.receive, client.send)

    assert closed == [True]
