"""The client's side of a request: its body within bounds, and the moment it leaves.

ASGI servers do not cancel a handler whose client has left, and Starlette's StreamingResponse listens for it only under
older versions of the protocol. A request that waits in the queue would keep waiting for nobody. So every generation
runs beside a listener of its own (`while_connected`), streaming or not, and is cancelled by it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chairlift.server.errors import ApiError

T = TypeVar("T")

SSE_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    # Proxies such as nginx would otherwise collect the stream before they pass it on.
    "x-accel-buffering": "no",
}


async def read_body(receive: Receive, limit: int) -> bytes:
    """A request's body.

    Args:
        receive: of ASGI.
        limit: bytes; a longer body is not read to its end.

    Raises:
        ApiError: 413, the body is too long.
        ClientDisconnect: the client left before its end.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise ApiError(
                413, f"the body is longer than {limit:,} bytes: shorten it, or start with a larger --max-body-size."
            )
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` until it is done or the client leaves, whichever comes first.

    Raises:
        ClientDisconnect: the client left; `work` was cancelled and has ended.
    """
    working = asyncio.ensure_future(work)
    listening = asyncio.ensure_future(_until_gone(receive))
    try:
        await asyncio.wait({working, listening}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        left = not working.done()
        working.cancel()
        listening.cancel()
        await asyncio.wait({working, listening})
    if left and working.cancelled():
        raise ClientDisconnect
    return working.result()


class EventStream(Response):
    """A response of server-sent events that ends its source when the client leaves."""

    def __init__(
        self, events: AsyncIterator[bytes], *, close: Callable[[], None], headers: Mapping[str, str] | None = None
    ) -> None:
        """Args:
        events: framed events.
        close: called once when the response ends, however it ends. Not left to the events' own clean-up, which does
            not run in a generator that was never started.
        headers: beside those of an event stream.
        """
        super().__init__(headers={**SSE_HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._events = events
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  (ASGI's signature)
        """Send every event as it comes, and listen meanwhile."""
        try:
            with contextlib.suppress(ClientDisconnect):
                await while_connected(receive, self._send_all(send))
        finally:
            self._close()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for event in self._events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def sse(data: bytes) -> bytes:
    """One event. The data has no line breaks: JSON escapes them."""
    return b"data: " + data + b"\n\n"


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
