"""Traces that cannot be: moments out of order, negative counts. They are refused, not published as figures."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from chairlift.records.client import RequestTrace
from chairlift.records.client_metrics import chunk_tokens

_ORDER = ("scheduled", "sent", "written", "first_byte", "first_event", "first_content", "last_content", "end")
"""Moments of a trace, none of which can come before the one in front of it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A trace that no figure is made of."""

    index: int
    """The request's number in its schedule."""
    why: str
    """What cannot be, with the numbers."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A run's traces, those that cannot be set aside."""

    traces: tuple[RequestTrace, ...]
    """In the order of the schedule."""
    refused: tuple[Refusal, ...]


def check(traces: Iterable[RequestTrace]) -> Checked:
    """Set aside what cannot be; of two traces with one index, the second."""
    sound: dict[int, RequestTrace] = {}
    refused = []
    for trace in traces:
        why = "there is another trace of this request" if trace.index in sound else impossible(trace)
        if why is None:
            sound[trace.index] = trace
        else:
            refused.append(Refusal(trace.index, why))
    return Checked(tuple(sound[index] for index in sorted(sound)), tuple(refused))


def impossible(trace: RequestTrace) -> str | None:
    """The first thing about a trace that cannot be, or None."""
    return next(_impossibilities(trace), None)


def _impossibilities(trace: RequestTrace) -> Iterator[str]:
    known = [(name, getattr(trace, name)) for name in _ORDER if getattr(trace, name) is not None]
    for (earlier, before), (later, after) in itertools.pairwise(known):
        if after < before:
            yield f"{later} ({after} ns) is before {earlier} ({before} ns)"
    for name in ("prompt_tokens", "cached_tokens", "output_tokens"):
        value = getattr(trace, name)
        if value is not None and value < 0:
            yield f"{name} is {value}"
    if trace.first_content is not None:
        if trace.sent is None:
            yield "there is content, and it was never sent"
        elif trace.first_content == trace.sent:
            yield f"its first token took no time: first_content and sent are both {trace.sent} ns"
    yield from _in_chunks(trace)


def _in_chunks(trace: RequestTrace) -> Iterator[str]:
    chunks = trace.chunks
    ends = (chunks[0].time, chunks[-1].time) if chunks else (None, None)
    if ends != (trace.first_content, trace.last_content):
        yield f"its chunks are from {ends[0]} to {ends[1]}, its content from {trace.first_content} to " + str(
            trace.last_content
        )
    for before, after in itertools.pairwise(chunks):
        if after.time < before.time:
            yield f"a chunk ({after.time} ns) is before the one before it ({before.time} ns)"
    negative = next((chunk.tokens for chunk in chunks if chunk.tokens is not None and chunk.tokens < 0), None)
    if negative is not None:
        yield f"a chunk has {negative} tokens"
    counted, said = chunk_tokens(trace), trace.output_tokens
    if trace.ok and counted is not None and said is not None and counted > said:
        yield f"its chunks have {counted} tokens, the target says that it generated {said}"
    if trace.ok and chunks and said == 0:
        yield "there is content, and the target says that it generated no token"
