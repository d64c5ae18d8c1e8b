"""A clock that moves by hand, and servers whose every byte the test sends."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from chairlift.core.request import Nanoseconds

PATIENCE = 120.0
"""Seconds after which a test that waits gives up. Never what decides whether it passes."""


async def until(condition: Callable[[], object]) -> None:
    """Let the event loop go on until it holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came to hold"
        await asyncio.sleep(0)


async def settle(rounds: int = 20) -> None:
    """Let everything that is ready happen."""
    for _ in range(rounds):
        await asyncio.sleep(0)


class ManualAlarm:
    """One call of a ManualClock."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class ManualClock:
    """Time passes when told."""

    def __init__(self) -> None:
        self.time: Nanoseconds = 0
        self.started = 0
        self._alarms: list[tuple[Nanoseconds, int, ManualAlarm]] = []
        self._numbers = itertools.count()

    def start(self) -> None:
        self.started += 1
        self.time = 0

    def now(self) -> Nanoseconds:
        return self.time

    def call_at(self, when: Nanoseconds, call: Callable[[], None]) -> ManualAlarm:
        alarm = ManualAlarm(call)
        if when <= self.time:
            asyncio.get_running_loop().call_soon(self._ring, alarm)
        else:
            heapq.heappush(self._alarms, (when, next(self._numbers), alarm))
        return alarm

    async def advance_to(self, when: Nanoseconds) -> None:
        """Ring every alarm up to a time, each at its own moment, and let what follows from it happen."""
        await settle()
        while self._alarms and self._alarms[0][0] <= when:
            self.time, _, alarm = heapq.heappop(self._alarms)
            self._ring(alarm)
            await settle()
        self.time = when

    async def jump_to(self, when: Nanoseconds) -> None:
        """The event loop stood still until a time: what was due rings only now."""
        await settle()
        self.time = when
        while self._alarms and self._alarms[0][0] <= when:
            self._ring(heapq.heappop(self._alarms)[2])
            await settle()

    @staticmethod
    def _ring(alarm: ManualAlarm) -> None:
        if alarm.call is not None:
            alarm.call()


@dataclass
class Exchange:
    """One request that a ScriptedServer has read, and the way to answer it."""

    head: str
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def begin(self, status: str = "200 OK", **headers: str) -> None:
        """Status line and headers; by default of a stream of events, framed by the end of the connection."""
        headers = {"content_type": "text/event-stream", **headers}
        lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())

    def send(self, data: bytes | str) -> None:
        """Bytes as they are."""
        self.writer.write(data.encode() if isinstance(data, str) else data)

    def event(self, data: str) -> None:
        """One event."""
        self.send(f"data: {data}\n\n")

    def answer(self, status: str, body: str, **headers: str) -> None:
        """A whole answer."""
        headers = {"content_type": "application/json", "content_length": str(len(body)), **headers}
        self.begin(status, **headers)
        self.send(body)

    async def end(self) -> None:
        """Close the connection in order."""
        self.writer.close()
        await self.writer.wait_closed()

    def reset(self) -> None:
        """Cut the connection."""
        self.writer.transport.abort()


class ScriptedServer:
    """Reads requests; the test answers them. Several may come over one connection, one after the other."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[Exchange] = asyncio.Queue()
        """What next() hands out."""
        self.inbox = self.requests
        """Where requests come in."""
        self.connections = 0
        self.url = ""
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._serving: list[asyncio.Task[None] | None] = []

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.url = f"http://{host}:{port}"

    async def next(self) -> Exchange:
        """The next request that comes in."""
        async with asyncio.timeout(PATIENCE):
            return await self.requests.get()

    async def stop(self) -> None:
        """Take no more connections, and cut those there are."""
        if self._server is not None:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()
            await until(lambda: all(task is None or task.done() for task in self._serving))
            await self._server.wait_closed()
            await settle()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._serving.append(asyncio.current_task())
        self._writers.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(
                    (
                        int(line.partition(":")[2])
                        for line in head.split("\r\n")
                        if line.lower().startswith("content-length")
                    ),
                    0,
                )
                self.inbox.put_nowait(Exchange(head, await reader.readexactly(length), reader, writer))
        except (asyncio.IncompleteReadError, OSError):
            writer.transport.abort()


@asynccontextmanager
async def scripted_server() -> AsyncIterator[ScriptedServer]:
    """A ScriptedServer on a free port."""
    server = ScriptedServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def paged_server(pages: dict[str, str | tuple[str, str]]) -> AsyncIterator[ScriptedServer]:
    """A server of fixed pages by path, each a body or a status and a body. Other GETs find nothing; other POSTs are
    left to the test.
    """
    async with scripted_server() as server:
        everything, server.requests = server.requests, asyncio.Queue()

        async def serve() -> None:
            while True:
                exchange = await everything.get()
                method, path, _ = exchange.head.split(" ", 2)
                if path in pages:
                    page = pages[path]
                    status, body = page if isinstance(page, tuple) else ("200 OK", page)
                    exchange.answer(status, body)
                elif method == "POST":
                    server.requests.put_nowait(exchange)
                else:
                    exchange.answer("404 Not Found", "")

        server.inbox = everything
        task = asyncio.create_task(serve())
        try:
            yield server
        finally:
            task.cancel()
