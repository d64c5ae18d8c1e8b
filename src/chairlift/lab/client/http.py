"""One request over HTTP: written, timed as its bytes come in, and every way of failing told apart."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Final

import aiohttp

from chairlift.core.request import Nanoseconds
from chairlift.lab.client.clock import SECOND, Clock
from chairlift.lab.client.deltas import DONE, NotAnAnswer, read_error_body, read_event
from chairlift.lab.client.sse import EventParser, ServerSentEvent
from chairlift.lab.client.stopwatch import Stopwatch
from chairlift.records.client import ErrorClass

# Servers close idle connections after some time (uvicorn after 5 s); a request that is written at that very moment
# fails without anybody's fault. So connections are given up well before.
_KEEP_ALIVE: Final = 2.0
_TAIL_PATIENCE: Final = 1.0
"""Seconds that a finished answer's connection may take to come to its end and be used again."""
_READ_AT_ONCE: Final = 2**18
_OWN_FAULTS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})
_OVERLOADED: Final = frozenset({429, 503})
_UNFINISHED: Final = frozenset({"error", "abort", "cancelled"})
"""Finish reasons that say there is no whole answer."""


def open_session(headers: Mapping[str, str] | None = None) -> aiohttp.ClientSession:
    """A session for any number of requests at a time: the load alone decides. Call it on a running event loop."""
    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(_on_reused)
    trace.on_connection_create_end.append(_on_created)
    trace.on_request_chunk_sent.append(_on_written)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=_KEEP_ALIVE, ttl_dns_cache=None),
        timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_read=None, sock_connect=None),
        headers={"accept-encoding": "identity", "user-agent": "chairlift", **(headers or {})},
        trace_configs=[trace],
        read_bufsize=_READ_AT_ONCE,
        auto_decompress=False,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


class HttpStream:
    """Sends bodies to one URL.

    Args:
        session: from open_session().
        url: of the endpoint.
        clock: the client's.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, clock: Clock) -> None:
        self._session = session
        self._url = url
        self._clock = clock
        self._tails: set[asyncio.Task[None]] = set()

    async def send(self, body: bytes, watch: Stopwatch) -> None:
        """Send one request and note what comes back. Raises nothing but cancellation and bugs."""
        try:
            response = await self._session.post(
                self._url,
                data=body,
                headers={"content-type": "application/json", "accept": "text/event-stream"},
                allow_redirects=False,
                trace_request_ctx=(watch, self._clock),
            )
        except (aiohttp.ClientError, OSError) as error:
            _note_error(watch, error)
            return
        whole = False
        try:
            watch.first_byte = watch.last_activity = self._clock.now()
            watch.status = response.status
            whole = await self._read(response, watch)
        except (aiohttp.ClientError, OSError) as error:
            _note_error(watch, error)
        except NotAnAnswer as error:
            watch.fail(ErrorClass.PROTOCOL, str(error))
        finally:
            self._let_go(response, whole=whole)

    async def close(self) -> None:
        """Wait for nothing any more."""
        for task in self._tails:
            task.cancel()
        await asyncio.gather(*self._tails, return_exceptions=True)

    async def _read(self, response: aiohttp.ClientResponse, watch: Stopwatch) -> bool:
        """Read an answer. Whether it came to its end, so that the connection may be used again."""
        if response.status != 200:
            _note_status(watch, response, await response.content.read())
            return True
        if response.content_type == "text/event-stream":
            return await self._stream(response, watch)
        # Not streamed, though that was asked for: one chunk.
        body = await response.content.read()
        watch.event(read_event(ServerSentEvent(body)), self._clock.now())
        _check_end(watch)
        return True

    async def _stream(self, response: aiohttp.ClientResponse, watch: Stopwatch) -> bool:
        parser, content, clock = EventParser(), response.content, self._clock
        done = False
        while not done and (data := await content.readany()):
            watch.last_activity = now = clock.now()
            done = _take(parser.feed(data), watch, now)
        if not done and (last := parser.close()) is not None:
            done = _take([last], watch, clock.now())
        watch.ended = watch.last_activity
        if watch.finish_reason is None and not done:
            watch.fail(
                ErrorClass.BROKEN_STREAM,
                f"the stream ended after {watch.chunks} chunks, without a finish reason and without [DONE]",
            )
        _check_end(watch)
        return watch.error is None

    def _let_go(self, response: aiohttp.ClientResponse, *, whole: bool) -> None:
        """Give the connection back. Where an answer is whole but its last bytes are not in, read on for a moment."""
        if not whole:
            response.close()
        elif response.content.at_eof():
            response.release()
        else:
            task = asyncio.create_task(_read_tail(response))
            self._tails.add(task)
            task.add_done_callback(self._tails.discard)


def _take(events: Iterable[ServerSentEvent], watch: Stopwatch, now: Nanoseconds) -> bool:
    """Note events. Whether the answer is at its end."""
    for event in events:
        if event.data == DONE:
            return True
        if event.data:
            watch.event(read_event(event), now)
    return watch.error is not None


def _check_end(watch: Stopwatch) -> None:
    if watch.finish_reason in _UNFINISHED:
        watch.fail(ErrorClass.IN_STREAM, f"the answer ended with finish reason {watch.finish_reason}")


async def _read_tail(response: aiohttp.ClientResponse) -> None:
    """Up to the end, or close."""
    try:
        async with asyncio.timeout(_TAIL_PATIENCE):
            while not response.content.at_eof():
                await response.content.readany()
        response.release()
    except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError
        response.close()
    except asyncio.CancelledError:
        response.close()
        raise


def _note_status(watch: Stopwatch, response: aiohttp.ClientResponse, body: bytes) -> None:
    status = response.status
    message = read_error_body(body) or f"status {status} {response.reason or ''}".rstrip()
    if status in _OVERLOADED:
        watch.retry_after = read_retry_after(response.headers)
        watch.fail(ErrorClass.OVERLOADED, message)
    elif 400 <= status < 500:
        watch.fail(ErrorClass.REJECTED, message)
    elif status >= 500:
        watch.fail(ErrorClass.SERVER, message)
    else:
        where = response.headers.get("location", "")
        watch.fail(ErrorClass.PROTOCOL, f"status {status}{f', to {where}: give that URL' if where else ''}")


def read_retry_after(headers: Mapping[str, str]) -> Nanoseconds | None:
    """Retry-After: seconds, or a date, which is compared with the server's own Date (RFC 9110, 10.2.3)."""
    value = headers.get("Retry-After", "").strip()
    try:
        if value and value.replace(".", "", 1).isdecimal():
            return round(float(value) * SECOND)
        then, now = parsedate_to_datetime(value), parsedate_to_datetime(headers.get("Date", ""))
        return max(0, round((then - now).total_seconds() * SECOND))
    except (ValueError, TypeError):  # TypeError: one of the dates has no zone
        return None


def _note_error(watch: Stopwatch, error: Exception) -> None:
    """Which class an error of the connection is, by what had happened until then."""
    number = _errno_of(error)
    message = f"{type(error).__name__}: {error}".rstrip(": ")
    if number in _OWN_FAULTS:
        watch.fail(ErrorClass.CLIENT, f"{message} ({errno.errorcode[number]})")
    elif isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError):
        watch.fail(ErrorClass.CONNECT, message)
    elif isinstance(error, aiohttp.InvalidURL | aiohttp.ClientResponseError):
        watch.fail(ErrorClass.PROTOCOL, message)
    elif watch.written is None:
        watch.fail(ErrorClass.CONNECT, message)
    else:
        watch.fail(ErrorClass.BROKEN_STREAM, f"after {watch.chunks} chunks: {message}")


def _errno_of(error: BaseException | None) -> int | None:
    """The operating system's number, wherever in the chain it is."""
    while error is not None:
        number = getattr(error, "errno", None) or getattr(getattr(error, "os_error", None), "errno", None)
        if isinstance(number, int):
            return number
        error = error.__cause__
    return None


async def _on_reused(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    watch, _ = context.trace_request_ctx
    watch.reused = True


async def _on_created(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    watch, _ = context.trace_request_ctx
    watch.reused = False


async def _on_written(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    """Called as each part of a body is handed over; the last one counts."""
    watch, clock = context.trace_request_ctx
    watch.written = watch.last_activity = clock.now()
