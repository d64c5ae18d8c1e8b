"""A server that does nothing but send: what a client measures on it is the client.

    python -m chairlift.lab.client.null_server [--port 0] [--interval 0.1] [--chunks 100] [--together] [--first 0]

It answers every POST with pre-rendered events, one a chunk and a token each, at a fixed cadence. It prints its URL on a
line of its own and runs until it is killed or, where its standard input is a pipe, until that is closed. /v1/models,
/health and /null/record are there for clients that ask; the last has what it saw since it was last looked at: when each
request came, how late it was itself, chunks sent, and the most streams at a time.

The cadence is a wheel with a slot for each millisecond of the interval. An answer's slot is the moment its request came
in, so that chunks of many streams spread evenly; with --together all streams send in the same slot, as a server does
after a step.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Final, cast

import uvloop

from chairlift.lab.client.clock import MILLISECOND, SECOND
from chairlift.lab.client.health import allow_many_files

MODEL: Final = "null-model"
_MAX_TOKENS: Final = re.compile(rb'"max_(?:completion_)?tokens"\s*:\s*(\d+)')
_LENGTH: Final = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_HEAD: Final = b"\r\n".join(
    (b"HTTP/1.1 200 OK", b"content-type: text/event-stream", b"transfer-encoding: chunked", b"", b"")
)


def _framed(data: bytes) -> bytes:
    """One chunk of the transfer coding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(body: object) -> bytes:
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


@dataclass(frozen=True)
class Answers:
    """Every byte that is ever sent, by endpoint."""

    chat: bool
    head: bytes = field(init=False)
    chunk: bytes = field(init=False)

    def __post_init__(self) -> None:
        first = self._chunk({"role": "assistant", "content": ""}) if self.chat else b""
        object.__setattr__(self, "head", _HEAD + (_framed(first) if first else b""))
        object.__setattr__(self, "chunk", _framed(self._chunk({"content": " word"})))

    def end(self, chunks: int) -> bytes:
        """The last chunk with its finish reason, the usage and the end of the transfer."""
        usage = {"prompt_tokens": 1, "completion_tokens": chunks, "total_tokens": chunks + 1}
        last = self._chunk({"content": " word"}, "length")
        tail = _event({**self._frame(), "choices": [], "usage": usage}) + b"data: [DONE]\n\n"
        return _framed(last) + _framed(tail) + b"0\r\n\r\n"

    def _frame(self) -> dict[str, object]:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return {"id": "null-0", "object": kind, "created": 0, "model": MODEL}

    def _chunk(self, delta: dict[str, str], finish_reason: str | None = None) -> bytes:
        choice: dict[str, object] = {"index": 0, "logprobs": None, "finish_reason": finish_reason}
        choice |= {"delta": delta} if self.chat else {"text": delta["content"]}
        return _event({**self._frame(), "choices": [choice]})


@dataclass(slots=True)
class Record:
    """What the server saw since it was last looked at."""

    arrivals: list[int] = field(default_factory=list)
    """ns on its monotonic clock: when each request was in, whole."""
    lateness: list[int] = field(default_factory=list)
    """ns: how late each tick that had something to send was. What a client measures includes it."""
    chunks: int = 0
    """Chunks sent."""
    streams: int = 0
    """Most at a time."""


class Wheel:
    """Sends the next chunk of each stream once an interval.

    Args:
        interval: ns between two chunks of a stream; a multiple of a millisecond.
        together: all streams in one slot.
        clock: the time in ns; never runs backwards.
    """

    def __init__(self, interval: int, *, together: bool = False, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._slots: list[set[Stream]] = [set() for _ in range(max(1, interval // MILLISECOND))]
        self._together = together
        self._position = 0
        self._due = 0
        self._streams = 0
        self.record = Record()

    def start(self) -> None:
        """Turn."""
        self._due = self._clock() + MILLISECOND
        self._arm()

    def add(self, stream: Stream, wait: int) -> None:
        """Serve a stream from `wait` ns on; in the common slot, up to an interval earlier."""
        ticks = max(1, -(-wait // MILLISECOND))
        stream.rounds = (ticks - 1) // len(self._slots)
        stream.slot = self._slots[0 if self._together else (self._position + ticks) % len(self._slots)]
        stream.slot.add(stream)
        record = self.record
        record.arrivals.append(self._clock())
        self._streams += 1
        record.streams = max(record.streams, self._streams)

    def leave(self, stream: Stream) -> None:
        """Serve a stream no more. No error when it is not served."""
        if stream.slot is not None:
            stream.slot.discard(stream)
            stream.slot = None
            self._streams -= 1

    def turn(self) -> None:
        """Serve every slot whose time has come."""
        while (now := self._clock()) >= self._due:
            self._position = (self._position + 1) % len(self._slots)
            streams = self._slots[self._position]
            if streams:
                self.record.lateness.append(now - self._due)
                for stream in tuple(streams):
                    self.record.chunks += stream.send()
            self._due += MILLISECOND

    def _arm(self) -> None:
        asyncio.get_running_loop().call_later(max(0.0, (self._due - self._clock()) / SECOND), self._tick)

    def _tick(self) -> None:
        self.turn()
        self._arm()


class Stream(asyncio.Protocol):
    """One connection: reads requests, and is the stream of the one it answers."""

    __slots__ = ("_buffer", "_end", "_left", "_options", "_transport", "_wheel", "chunk", "rounds", "slot")

    def __init__(self, wheel: Wheel, options: Options) -> None:
        self._wheel = wheel
        self._options = options
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._left = 0
        self._end = b""
        self.chunk = b""
        self.rounds = 0
        """Turns of the wheel to wait for the first chunk."""
        self.slot: set[Stream] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own is no subclass of it

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - no matter why
        self._wheel.leave(self)
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        length = _LENGTH.search(head + b"\r\n")
        size = int(length[1]) if length else 0
        if len(rest) < size:
            return
        self._buffer = rest[size:]
        self._answer(head, rest[:size])

    def send(self) -> bool:
        """The next chunk. False: it is not its turn yet."""
        if self._transport is None or self._transport.is_closing():
            return False
        if self.rounds:
            self.rounds -= 1
            return False
        self._left -= 1
        if self._left:
            self._transport.write(self.chunk)
        else:
            self._wheel.leave(self)
            self._transport.write(self._end)
        return True

    def _answer(self, head: bytes, body: bytes) -> None:
        if self._transport is None:
            return
        if not head.startswith(b"POST"):
            self._transport.write(self._options.page(head, self._wheel))
            return
        asked = _MAX_TOKENS.search(body)
        self._left = max(1, int(asked[1])) if asked else self._options.chunks
        answers = self._options.chat if b"/chat/" in head[:80] else self._options.completions
        self.chunk = answers.chunk
        self._end = self._options.end(answers, self._left)
        self._transport.write(answers.head)
        self._wheel.add(self, self._options.first or self._options.interval)


@dataclass
class Options:
    """What is sent, and when."""

    chunks: int
    interval: int
    first: int
    chat: Answers = field(default_factory=lambda: Answers(chat=True))
    completions: Answers = field(default_factory=lambda: Answers(chat=False))
    _ends: dict[tuple[bool, int], bytes] = field(default_factory=dict)

    def end(self, answers: Answers, chunks: int) -> bytes:
        """Rendered once for each length."""
        key = (answers.chat, chunks)
        if key not in self._ends:
            self._ends[key] = answers.end(chunks)
        return self._ends[key]

    def page(self, head: bytes, wheel: Wheel) -> bytes:
        """The answer to a GET."""
        path = head.split(b" ", 2)[1]
        known = {
            b"/v1/models": {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "null"}]},
            b"/health": {"status": "ok"},
        }
        if path == b"/null/record":
            known[path] = asdict(wheel.record)
            wheel.record = Record()
        body = json.dumps(known.get(path, {})).encode()
        status = b"200 OK" if path in known else b"404 Not Found"
        return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
            status,
            len(body),
            body,
        )


async def serve(options: Options, host: str, port: int, *, together: bool = False) -> asyncio.Server:
    """Start on a running event loop; port 0 takes a free one."""
    wheel = Wheel(options.interval, together=together)
    server = await asyncio.get_running_loop().create_server(lambda: Stream(wheel, options), host, port, backlog=4096)
    wheel.start()
    return server


async def _run(arguments: argparse.Namespace) -> None:
    options = Options(
        chunks=arguments.chunks,
        interval=max(1, round(arguments.interval * 1000)) * MILLISECOND,
        first=round(arguments.first * 1000) * MILLISECOND,
    )
    server = await serve(options, arguments.host, arguments.port, together=arguments.together)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"http://{host}:{port}", flush=True)  # noqa: T201 - whoever started it reads this
    gc.freeze()
    ended = asyncio.Event()

    def look() -> None:
        if not os.read(sys.stdin.fileno(), 1):
            ended.set()

    if stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):  # whoever holds the other end has started this
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), look)
    await ended.wait()
    server.close()  # without waiting for streams that are still open


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--interval", type=float, default=0.1, help="seconds between two chunks of a stream")
    parser.add_argument("--first", type=float, default=0.0, help="seconds until the first chunk; 0: an interval")
    parser.add_argument("--chunks", type=int, default=100, help="chunks of an answer whose request has no max_tokens")
    parser.add_argument("--together", action="store_true", help="all streams send at the same moment, as after a step")
    arguments = parser.parse_args()
    allow_many_files()
    uvloop.run(_run(arguments))


if __name__ == "__main__":
    main()
