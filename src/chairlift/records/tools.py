"""A run by other tools' definitions, so that their numbers can be set beside ours. Made from the same traces.

Only what those traces hold can be shown. Where a tool does something that they do not tell, the metric's population
says what was taken instead. All three tools take successful requests only, and start their clocks at the send, not at
the schedule: a client that is late hides it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from chairlift.core.request import Nanoseconds
from chairlift.records.client import RequestTrace
from chairlift.records.client_metrics import PERCENTS
from chairlift.records.metrics import Distribution, Metric, Rate, distribution

ToolName = Literal["vllm", "guidellm", "aiperf"]
TOOLS: Final[tuple[ToolName, ...]] = get_args(ToolName)


@dataclass(frozen=True, slots=True)
class Tool:
    """How one tool defines its numbers."""

    name: ToolName
    source: str
    """Where its definitions were read."""
    metrics: tuple[Metric[RequestTrace], ...]
    output_rate: str
    """What it calls output tokens a second."""
    rate_definition: str
    starts: Callable[[RequestTrace], Nanoseconds]
    """Where a request begins, for the length of the run."""
    stops: Callable[[RequestTrace], Nanoseconds]
    """Where it ends."""


@dataclass(frozen=True, slots=True)
class ToolView:
    """One run by one tool's definitions."""

    tool: Tool
    distributions: tuple[Distribution, ...]
    output_rate: Rate
    successful: int
    failed: int


def as_tool(name: ToolName, traces: Sequence[RequestTrace]) -> ToolView:
    """The traces that count, by a tool's definitions."""
    tool = DEFINITIONS[name]
    good = [trace for trace in traces if _good(trace)]
    counts = [trace.output_tokens for trace in good]
    span = max(map(tool.stops, good), default=0) - min(map(tool.starts, good), default=0)
    rate = Rate(
        tool.output_rate,
        "tokens/s",
        sum(count for count in counts if count is not None),
        span / 1e9,
        tool.rate_definition,
        unknown=counts.count(None),
    )
    return ToolView(
        tool,
        tuple(distribution(metric, good, PERCENTS) for metric in tool.metrics),
        rate,
        successful=len(good),
        failed=len(traces) - len(good),
    )


def _good(trace: RequestTrace) -> bool:
    return trace.ok and trace.sent is not None and trace.first_content is not None


def _sent(trace: RequestTrace) -> Nanoseconds:
    return trace.scheduled if trace.sent is None else trace.sent


def _last(trace: RequestTrace) -> Nanoseconds:
    return trace.end if trace.last_content is None else trace.last_content


def _first_event(trace: RequestTrace) -> Nanoseconds:
    """The first event of any kind; where it was not noted, the first content."""
    moment = trace.first_event if trace.first_event is not None else trace.first_content
    return trace.end if moment is None else moment


def _first(trace: RequestTrace) -> Nanoseconds:
    return trace.end if trace.first_content is None else trace.first_content


def _event_gaps(trace: RequestTrace) -> Sequence[float]:
    """Between events as vLLM sees them: a role-only event is one, too."""
    times = [chunk.time for chunk in trace.chunks]
    if times and _first_event(trace) < times[0]:
        times.insert(0, _first_event(trace))
    return [after - before for before, after in itertools.pairwise(times)]


def _chunk_gaps(trace: RequestTrace) -> Sequence[float]:
    return [after.time - before.time for before, after in itertools.pairwise(trace.chunks)]


def _mean(
    start: Callable[[RequestTrace], Nanoseconds], *, but_first: bool
) -> Callable[[RequestTrace], Sequence[float] | None]:
    """From start to the last content, a token; the first token left out of the divisor or not."""

    def values(trace: RequestTrace) -> Sequence[float] | None:
        if trace.output_tokens is None:
            return None
        divisor = trace.output_tokens - but_first
        return () if divisor < 1 else ((_last(trace) - start(trace)) / divisor,)

    return values


def _per_user(trace: RequestTrace) -> Sequence[float] | None:
    means = _mean(_first, but_first=True)(trace)
    return means and [1e9 / mean for mean in means if mean]


_COUNTED = "successful requests; tokens by the target's usage, not observable without it"

_VLLM = Tool(
    "vllm",
    source="vLLM, vllm/benchmarks/serve.py and vllm/benchmarks/lib/endpoint_request_func.py "
    "(github.com/vllm-project/vllm at def9ce8 and 3aee4a4)",
    metrics=(
        Metric(
            "ttft_ms",
            unit="ms",
            starts="the request is sent, after the tool's own semaphore",
            stops="the first event with choices, be it an empty role-only one",
            population="successful requests",
            values=lambda trace: (_first_event(trace) - _sent(trace),),
        ),
        Metric(
            "tpot_ms",
            unit="ms",
            starts="the first event with choices",
            stops="the last one (taken: the last with content), divided by output tokens - 1: one mean a request",
            population=f"{_COUNTED}; more than one output token",
            values=_mean(_first_event, but_first=True),
        ),
        Metric(
            "itl_ms",
            unit="ms",
            starts="an event with choices",
            stops="the next one: a gap between chunks, however many tokens each brings",
            population="gaps of successful requests (taken: events with content, and a role-only one in front)",
            values=_event_gaps,
        ),
        Metric(
            "e2el_ms",
            unit="ms",
            starts="the request is sent",
            stops="the last event with choices (taken: the last with content)",
            population="successful requests",
            values=lambda trace: (_last(trace) - _sent(trace),),
        ),
    ),
    output_rate="output_throughput",
    rate_definition="output tokens of successful requests / time from the start of the benchmark to the end of all "
    "(taken: from the first due to the last end, of successful requests)",
    starts=lambda trace: trace.scheduled,
    stops=lambda trace: trace.end,
)
_GUIDELLM = Tool(
    "guidellm",
    source="GuideLLM, src/guidellm/schemas/request_stats.py (github.com/vllm-project/guidellm at 06cef29); its "
    "versions differ in whether TPOT and ITL are weighted by tokens: here each request has one value of weight 1",
    metrics=(
        Metric(
            "time_to_first_token_ms",
            unit="ms",
            starts="the request is sent",
            stops="the first iteration with content",
            population="successful requests",
            values=lambda trace: (_first(trace) - _sent(trace),),
        ),
        Metric(
            "time_per_output_token_ms",
            unit="ms",
            starts="the request is sent: the first token is included",
            stops="the last iteration with content, divided by output tokens: one mean a request",
            population=_COUNTED,
            values=_mean(_sent, but_first=False),
        ),
        Metric(
            "inter_token_latency_ms",
            unit="ms",
            starts="the first iteration with content",
            stops="the last one, divided by output tokens - 1: one mean a request",
            population=f"{_COUNTED}; more than one output token",
            values=_mean(_first, but_first=True),
        ),
        Metric(
            "request_latency",
            unit="s",
            starts="the request is sent",
            stops="the end of the answer",
            population="successful requests",
            values=lambda trace: (trace.end - _sent(trace),),
        ),
    ),
    output_rate="output_tokens_per_second",
    rate_definition="output tokens of successful requests / time from the first sent to the last end of them (the tool "
    "has a distribution over time; this is its mean)",
    starts=_sent,
    stops=lambda trace: trace.end,
)
_AIPERF = Tool(
    "aiperf",
    source="AIPerf, docs/metrics_reference.md (github.com/ai-dynamo/aiperf at 25f8117); it counts tokens with a "
    "tokenizer of its own, here the target's usage counts",
    metrics=(
        Metric(
            "time_to_first_token",
            unit="ms",
            starts="the request is sent",
            stops="the first response that is not empty",
            population="successful requests",
            values=lambda trace: (_first(trace) - _sent(trace),),
        ),
        Metric(
            "inter_token_latency",
            unit="ms",
            starts="the first response that is not empty",
            stops="the last one, divided by output tokens - 1: one mean a request",
            population=f"{_COUNTED}; more than one output token, more than one response",
            values=lambda trace: _mean(_first, but_first=True)(trace) if len(trace.chunks) > 1 else (),
        ),
        Metric(
            "inter_chunk_latency",
            unit="ms",
            starts="a response that is not empty",
            stops="the next one, however many tokens each brings",
            population="gaps of successful requests",
            values=_chunk_gaps,
        ),
        Metric(
            "request_latency",
            unit="ms",
            starts="the request is sent",
            stops="the last response that is not empty",
            population="successful requests",
            values=lambda trace: (_last(trace) - _sent(trace),),
        ),
        Metric(
            "output_token_throughput_per_user",
            unit="tokens/s/user",
            starts="as inter_token_latency",
            stops="1 / inter_token_latency",
            population="as inter_token_latency",
            values=lambda trace: _per_user(trace) if len(trace.chunks) > 1 else (),
        ),
    ),
    output_rate="output_token_throughput",
    rate_definition="output tokens of successful requests / time from the first sent to the last response of them",
    starts=_sent,
    stops=_last,
)

DEFINITIONS: Final[Mapping[ToolName, Tool]] = {tool.name: tool for tool in (_VLLM, _GUIDELLM, _AIPERF)}
