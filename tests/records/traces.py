"""A client's traces to test with, in milliseconds, and ways to draw them."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from chairlift.records.client import Chunk, Chunks, ErrorClass, HealthSample, RequestTrace, TokenSource

MS = 1_000_000


def trace(
    index: int = 0,
    due: int = 0,
    *,
    sent: int | None = None,
    chunks: Sequence[tuple[int, int | None]] = ((30, 1), (40, 1), (54, 1)),
    end: int | None = None,
    **fields: Any,
) -> RequestTrace:
    """Sent when due, unless told; chunks are (ms, tokens); the end is the last chunk's; usage counts the tokens."""
    made = Chunks(
        Chunk(round(time * MS), tokens, TokenSource.UNKNOWN if tokens is None else TokenSource.TOKEN_IDS)
        for time, tokens in chunks
    )
    known = [chunk.tokens for chunk in made if chunk.tokens is not None]
    last = made[-1].time if made else due * MS
    first = made[0].time if made else None
    return RequestTrace(
        **{
            "index": index,
            "scheduled": due * MS,
            "warmup": False,
            "sent": (due if sent is None else sent) * MS,
            "end": last if end is None else end * MS,
            "first_event": first,
            "first_content": first,
            "last_content": made[-1].time if made else None,
            "chunks": made,
            "prompt_tokens": 10,
            "output_tokens": sum(known) if len(known) == len(made) else None,
            **fields,
        }
    )


def failed(index: int, due: int, end: int, error: ErrorClass = ErrorClass.TIMEOUT, **fields: Any) -> RequestTrace:
    """A request without an answer."""
    return trace(index, due, chunks=(), end=end, error=error, output_tokens=None, **fields)


def health(time: int, in_flight: int, interval: int = 1000) -> HealthSample:
    """A sample of a client at ease."""
    return HealthSample(time * MS, interval * MS, (), 0, 0, in_flight, 0, 0.1, 0.1, None)


gaps = st.lists(st.tuples(st.integers(1, 500), st.integers(1, 5)), max_size=8)
"""Milliseconds to the next chunk, and the tokens it brings."""


@st.composite
def sound(draw: st.DrawFn, index: int = 0) -> RequestTrace:
    """A trace of a whole answer that can be, all token counts known."""
    due = draw(st.integers(0, 5000))
    now = sent = due + draw(st.integers(0, 50))
    chunks = []
    for gap, tokens in draw(gaps.filter(bool)):
        now += gap
        chunks.append((now, tokens))
    return trace(index, due, sent=sent, chunks=chunks, end=now + draw(st.integers(0, 20)))


runs = st.integers(1, 12).flatmap(lambda count: st.tuples(*(sound(index) for index in range(count)))).map(list)
