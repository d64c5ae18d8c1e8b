"""What the numbers that a client measures mean: each is defined once, here, on the client's traces.

A token's moment is the moment of the chunk that brought it. A chunk may bring several tokens: the gap before it is
spread evenly over them, so that the time between tokens is per token, never per chunk. Chunks of the same moment, which
the client read in one go, are one in this. The tokens of the first chunk have no gap, since nobody outside can see how
they were apart.

The time between tokens of a request is not observable where it has two tokens or more and
    - a chunk's tokens are unknown (nothing is guessed, and text is never tokenized again), or the chunks account for
      fewer tokens than the target says it generated (one less is well: the token that ends a sequence has no text);
    - all tokens came in one chunk, or less than 50 us apart on average: the target held the answer back.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from chairlift.core.request import Nanoseconds
from chairlift.records.client import RequestTrace
from chairlift.records.metrics import Metric

PERCENTS: Final = (50.0, 90.0, 95.0, 99.0, 99.9)
"""Percentiles that are told, beside mean and maximum."""
TOGETHER: Final[Nanoseconds] = 50_000
"""ns: tokens closer than this on average came together. No step of a model is as short; reading an event out of a
buffer is."""


def output_tokens(trace: RequestTrace) -> int | None:
    """Tokens of the answer: as the target's usage says, or else the sum over the chunks. None where neither tells."""
    if trace.output_tokens is not None:
        return trace.output_tokens
    return chunk_tokens(trace) if trace.chunks else None


def chunk_tokens(trace: RequestTrace) -> int | None:
    """Tokens that the chunks account for; None where one of them does not tell."""
    total = 0
    for chunk in trace.chunks:
        if chunk.tokens is None:
            return None
        total += chunk.tokens
    return total


def token_gaps(trace: RequestTrace) -> Sequence[float] | None:
    """ns: the time between tokens of one answer, as the module defines it.

    Empty where there are fewer than two tokens; None where there are more and the gaps are not observable.
    """
    counted, said = chunk_tokens(trace), trace.output_tokens
    if counted is None:
        return () if said is not None and said < 2 else None
    if said is not None and counted < said - 1:
        return None
    if max(counted, said or 0) < 2:
        return ()
    if counted == 1:
        return ()  # the second is the token without text
    arrived: dict[Nanoseconds, int] = {}
    for chunk in trace.chunks:
        if chunk.tokens:
            arrived[chunk.time] = arrived.get(chunk.time, 0) + chunk.tokens
    gaps: list[float] = []
    for before, after in itertools.pairwise(arrived):
        gaps += [(after - before) / arrived[after]] * arrived[after]
    together = not gaps or sum(gaps) / len(gaps) < TOGETHER
    return None if together else gaps


def _span(trace: RequestTrace, start: Nanoseconds | None, stop: Nanoseconds | None) -> Sequence[Nanoseconds]:
    """From start to stop, of a request that has a whole answer and both moments."""
    return () if not trace.ok or start is None or stop is None else (stop - start,)


def _between(trace: RequestTrace) -> Sequence[float] | None:
    return token_gaps(trace) if trace.ok else ()


def _per_output_token(trace: RequestTrace) -> Sequence[float] | None:
    if not trace.ok:
        return ()
    gaps = token_gaps(trace)
    return gaps and (sum(gaps) / len(gaps),)


ANSWERED: Final = "requests with a whole answer; others are counted beside them, by class of error, never inside"

TTFT_FROM_SCHEDULE: Final[Metric[RequestTrace]] = Metric(
    "ttft_from_schedule",
    unit="s",
    starts="the moment the load says the request is due, sent or not",
    stops="the first event that carries generated content (a role-only or usage-only event does not count; reasoning "
    "does)",
    population=ANSWERED,
    values=lambda trace: _span(trace, trace.scheduled, trace.first_content),
)
TTFT_FROM_SEND: Final[Metric[RequestTrace]] = Metric(
    "ttft_from_send",
    unit="s",
    starts="the moment the client begins with the request: connecting is included, its own lateness is not",
    stops="the first event that carries generated content",
    population=ANSWERED,
    values=lambda trace: _span(trace, trace.sent, trace.first_content),
)
TIME_BETWEEN_TOKENS: Final[Metric[RequestTrace]] = Metric(
    "time_between_tokens",
    unit="s",
    starts="the arrival of a token",
    stops="the arrival of the same answer's next token; the gap before a chunk of several tokens is spread over them",
    population="each token after the first chunk, of requests with a whole answer; not observable where a chunk's "
    "tokens are unknown or the answer was held back",
    values=_between,
)
TIME_PER_OUTPUT_TOKEN: Final[Metric[RequestTrace]] = Metric(
    "time_per_output_token",
    unit="s",
    starts="the first chunk",
    stops="the last chunk that brought a token, divided by the tokens after the first chunk: one mean a request",
    population="requests with a whole answer whose time between tokens is observable",
    values=_per_output_token,
)
END_TO_END_FROM_SCHEDULE: Final[Metric[RequestTrace]] = Metric(
    "end_to_end_from_schedule",
    unit="s",
    starts="the moment the load says the request is due, sent or not",
    stops="the end of the answer, usage included",
    population=ANSWERED,
    values=lambda trace: _span(trace, trace.scheduled, trace.end),
)
END_TO_END_FROM_SEND: Final[Metric[RequestTrace]] = Metric(
    "end_to_end_from_send",
    unit="s",
    starts="the moment the client begins with the request",
    stops="the end of the answer, usage included",
    population=ANSWERED,
    values=lambda trace: _span(trace, trace.sent, trace.end),
)
SEND_LAG: Final[Metric[RequestTrace]] = Metric(
    "send_lag",
    unit="s",
    starts="the moment the load says the request is due",
    stops="the moment the client begins with it: the client's own lateness, never the target's",
    population="requests that were sent, however they ended",
    values=lambda trace: () if trace.sent is None else (trace.sent - trace.scheduled,),
)

CLIENT_METRICS: Final = (
    TTFT_FROM_SCHEDULE,
    TTFT_FROM_SEND,
    TIME_BETWEEN_TOKENS,
    TIME_PER_OUTPUT_TOKEN,
    END_TO_END_FROM_SCHEDULE,
    END_TO_END_FROM_SEND,
    SEND_LAG,
)
