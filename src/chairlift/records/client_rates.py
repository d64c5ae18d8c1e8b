"""Counts over time of what a client saw: tokens a second, requests a second, goodput."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from chairlift.core.errors import ConfigError
from chairlift.core.request import Nanoseconds
from chairlift.records.client import RequestTrace
from chairlift.records.client_metrics import output_tokens, token_gaps
from chairlift.records.metrics import Rate

_SECOND: Final = 1e9
_SPAN: Final = "time from when the first of the requests was due to the end of the last, however each ended"

OUTPUT_TOKENS: Final = f"output tokens of requests with a whole answer, by the target's usage / {_SPAN}"
TOTAL_TOKENS: Final = f"prompt and output tokens of requests with a whole answer, by the target's usage / {_SPAN}"
REQUESTS: Final = f"requests with a whole answer / {_SPAN}"
GOODPUT: Final = (
    "requests that met every limit, and their own deadline for the first token where the load gives them one / "
    "requests scheduled: those that failed, were cut or were never sent are in the denominator. A request whose limits "
    "cannot be checked does not count as met, and is told beside it"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request must keep to be good. At least one is given.

    Raises:
        ConfigError: none is given, or one is not positive.
    """

    ttft: Nanoseconds | None = None
    """Time to first token, from schedule."""
    itl: Nanoseconds | None = None
    """Each time between tokens: the longest stutter a reader sees."""
    tpot: Nanoseconds | None = None
    """The mean time between the request's tokens."""
    end_to_end: Nanoseconds | None = None
    """From schedule to the end of the answer."""

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not None}
        if not given:
            raise ConfigError("goodput needs a limit: --ttft-limit, --itl-limit, --tpot-limit or --end-to-end-limit.")
        for name, value in given.items():
            if value < 1:
                raise ConfigError(f"--{name.replace('_', '-')}-limit is {value} ns; it must be positive.")


@dataclass(frozen=True, slots=True)
class Goodput:
    """How many of the requests scheduled met the limits."""

    limits: Limits | None
    """None: nothing but the requests' own deadlines."""
    scheduled: int
    met: int
    undecided: int
    """Whole answers that broke no limit that could be checked, with one that could not be."""

    @property
    def value(self) -> float | None:
        """Met / scheduled; None where nothing was scheduled."""
        return self.met / self.scheduled if self.scheduled else None


def goodput(traces: Sequence[RequestTrace], limits: Limits | None = None) -> Goodput:
    """Of all traces of a run but its warm-up: each scheduled request has one. Without limits deadlines alone count."""
    verdicts = [meets(trace, limits) for trace in traces]
    return Goodput(limits, len(verdicts), sum(one is True for one in verdicts), sum(one is None for one in verdicts))


def meets(trace: RequestTrace, limits: Limits | None = None) -> bool | None:
    """Whether a request met all limits and its deadline. None: none is broken, and one of them cannot be checked."""
    if not trace.ok:
        return False
    first = None if trace.first_content is None else trace.first_content - trace.scheduled
    verdicts = [_within(first, trace.deadline)]
    if limits is not None:
        verdicts += [_within(first, limits.ttft), _within(trace.end - trace.scheduled, limits.end_to_end)]
    if limits is not None and (limits.itl is not None or limits.tpot is not None):
        gaps = token_gaps(trace)
        if gaps is None:
            verdicts.append(None)
        elif gaps:
            verdicts += [_within(max(gaps), limits.itl), _within(sum(gaps) / len(gaps), limits.tpot)]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _within(value: float | None, limit: Nanoseconds | None) -> bool | None:
    if limit is None:
        return True
    return None if value is None else value <= limit


def output_tokens_per_second(traces: Sequence[RequestTrace]) -> Rate:
    """See OUTPUT_TOKENS."""
    return _rate("output_tokens_per_second", "tokens/s", traces, output_tokens, OUTPUT_TOKENS)


def total_tokens_per_second(traces: Sequence[RequestTrace]) -> Rate:
    """See TOTAL_TOKENS."""
    return _rate("total_tokens_per_second", "tokens/s", traces, _all_tokens, TOTAL_TOKENS)


def requests_per_second(traces: Sequence[RequestTrace]) -> Rate:
    """See REQUESTS."""
    return _rate("requests_per_second", "requests/s", traces, lambda _: 1, REQUESTS)


def _all_tokens(trace: RequestTrace) -> int | None:
    output = output_tokens(trace)
    return None if output is None or trace.prompt_tokens is None else trace.prompt_tokens + output


def _rate(
    name: str,
    unit: str,
    traces: Sequence[RequestTrace],
    count: Callable[[RequestTrace], int | None],
    definition: str,
) -> Rate:
    counts = [count(trace) for trace in traces if trace.ok]
    span = max((t.end for t in traces), default=0) - min((t.scheduled for t in traces), default=0)
    known = [one for one in counts if one is not None]
    return Rate(name, unit, sum(known), span / _SECOND, definition, unknown=len(counts) - len(known))
