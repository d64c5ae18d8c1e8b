"""Server-sent events from bytes that arrive in any split.

The grammar is the WHATWG's (HTML standard, section "Server-sent events"): lines end in LF, CR or CRLF, a blank line
ends an event, `data` lines are joined by LF, lines that begin with a colon are comments, a leading byte-order mark is
skipped. One deviation: a line of a field named `error`, which the standard would ignore, is an event of that name,
because llama.cpp's server reported errors so until 2025.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_BOM: Final = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """One event."""

    data: bytes
    """Its data lines, joined by LF."""
    name: bytes = b""
    """Its `event` field; empty when it has none."""


class EventParser:
    """Feed it what arrives; it returns the events that are complete by then."""

    __slots__ = ("_data", "_name", "_pieces", "_skip_newline", "_started")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        """An unfinished line."""
        self._data: list[bytes] = []
        """Data lines of an unfinished event."""
        self._name = b""
        self._skip_newline = False
        """The last byte was a CR; an LF that follows belongs to it."""
        self._started = False

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """The events that end in `data`."""
        if not data:
            return []
        if self._started and not (self._pieces or self._data or self._name or self._skip_newline):
            plain = _whole_events(data)
            if plain is not None:
                return plain
        if self._skip_newline:
            self._skip_newline = False
            data = data.removeprefix(b"\n")
        if not self._started:
            data = b"".join((*self._pieces, data))
            self._pieces.clear()
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._pieces.append(data)
                return []
            data = data.removeprefix(_BOM)
            self._started = True
        return self._lines(data)

    def close(self) -> ServerSentEvent | None:
        """The event that the end of the stream cut short, or None. The standard drops it; a last `[DONE]` or usage
        whose blank line the server forgot is still worth reading.
        """
        line = b"".join(self._pieces)
        self._pieces.clear()
        return (self._line(line) if line else None) or self._dispatch()

    def _lines(self, data: bytes) -> list[ServerSentEvent]:
        if b"\n" not in data and b"\r" not in data:
            if data:
                self._pieces.append(data)
            return []
        lines = b"".join((*self._pieces, data)).splitlines(keepends=True)
        self._pieces.clear()
        self._skip_newline = lines[-1].endswith(b"\r")
        if not lines[-1].endswith((b"\n", b"\r")):
            self._pieces.append(lines.pop())
        return [event for line in lines if (event := self._line(line.rstrip(b"\r\n"))) is not None]

    def _line(self, line: bytes) -> ServerSentEvent | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        elif field == b"error":
            return ServerSentEvent(value, b"error")
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        data, name = self._data, self._name
        self._name = b""
        if not data:
            return None
        self._data = []
        return ServerSentEvent(b"\n".join(data), name)


def _whole_events(data: bytes) -> list[ServerSentEvent] | None:
    """The events of the usual case: whole ones of a single data line each. None: read it line by line."""
    if b"\r" in data or not data.endswith(b"\n\n"):
        return None
    events = []
    for event in data[:-2].split(b"\n\n"):
        if not event.startswith(b"data: ") or b"\n" in event:
            return None
        events.append(ServerSentEvent(event[6:]))
    return events
