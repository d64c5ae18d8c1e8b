"""The figures of one run, from whatever records it has: the client's where there was one, else the engine's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chairlift.core.request import FinishReason
from chairlift.lab.report.sources import RunView
from chairlift.records.client_checks import check
from chairlift.records.client_metrics import (
    END_TO_END_FROM_SCHEDULE,
    PERCENTS,
    TIME_PER_OUTPUT_TOKEN,
    TTFT_FROM_SCHEDULE,
)
from chairlift.records.client_metrics import TIME_BETWEEN_TOKENS as CLIENT_BETWEEN
from chairlift.records.client_rates import output_tokens_per_second as client_output_rate
from chairlift.records.metrics import (
    END_TO_END,
    TIME_BETWEEN_TOKENS,
    TIME_TO_FIRST_TOKEN,
    Distribution,
    Metric,
    Rate,
    distribution,
    output_tokens_per_second,
)
from chairlift.records.schema import RequestRecord
from chairlift.records.usage import Usage, usage


def _mean_gap(record: RequestRecord) -> Sequence[float] | None:
    values = TIME_BETWEEN_TOKENS.values(record)
    return (math.fsum(values) / len(values),) if values else values


ENGINE_PER_TOKEN: Final[Metric[RequestRecord]] = Metric(
    "time_per_output_token",
    unit="s",
    starts="the release of the first token",
    stops="the release of the last token, divided by the tokens after the first: one mean a request",
    population="requests answered and streamed with two tokens or more; not observable where results are held back",
    values=_mean_gap,
)
LATENCIES: Final[Mapping[str, str]] = {
    "ttft": "time to first token",
    "itl": "time between tokens",
    "tpot": "time per output token",
    "e2e": "end to end",
}
"""What is shown of each run, with its name in pictures."""
SHORT: Final[Mapping[str, str]] = {"ttft": "TTFT", "itl": "ITL", "tpot": "TPOT", "e2e": "E2E"}
"""The same in tables."""
_CLIENT: Final[Mapping[str, Metric[Any]]] = {
    "ttft": TTFT_FROM_SCHEDULE,
    "itl": CLIENT_BETWEEN,
    "tpot": TIME_PER_OUTPUT_TOKEN,
    "e2e": END_TO_END_FROM_SCHEDULE,
}
_ENGINE: Final[Mapping[str, Metric[Any]]] = {
    "ttft": TIME_TO_FIRST_TOKEN,
    "itl": TIME_BETWEEN_TOKENS,
    "tpot": ENGINE_PER_TOKEN,
    "e2e": END_TO_END,
}
_ANSWERED: Final = (FinishReason.STOP, FinishReason.LENGTH)


@dataclass(frozen=True)
class Latency:
    """One latency of one run."""

    distribution: Distribution
    values: Sequence[float]
    """Ascending, in seconds."""

    @property
    def percentiles(self) -> dict[str, float]:
        """Those that there are enough values for, and the maximum, in seconds."""
        found = self.distribution
        told = {
            f"p{percent:g}": value
            for percent, value in sorted(found.percentiles.items())
            if found.told(percent) is not None
        }
        return told if found.maximum is None else {**told, "max": found.maximum}


@dataclass(frozen=True)
class RunFigures:
    """One run in figures. None: nobody can tell."""

    label: str
    seen_by: str
    """client or engine: who measured the latencies."""
    requests: int
    answered: int
    failed: Mapping[str, int]
    """The others, by what became of them."""
    output_rate: Rate
    latencies: Mapping[str, Latency]
    """By the keys of LATENCIES."""
    usage: Usage | None
    preemptions: int | None
    ledger: Mapping[str, Any] | None

    @property
    def rate(self) -> float | None:
        """Output tokens a second; a zero is none."""
        return self.output_rate.value if self.output_rate.count else None

    def ledger_seconds(self, category: str) -> float | None:
        """Of a category of the ledger."""
        return None if self.ledger is None else self.ledger["times"].get(category, 0) / 1e9

    def definitions(self) -> dict[str, str]:
        """What each figure means, by name."""
        told = {
            f"{LATENCIES[key]} ({SHORT[key]})": _words(latency.distribution.metric, self.seen_by)
            for key, latency in self.latencies.items()
        }
        return told | {"output tokens/s": f"[{self.output_rate.unit}] {self.output_rate.definition}."}


def figures(view: RunView) -> RunFigures:
    """Of a run.

    Raises:
        RecordError: its records are damaged.
    """
    used = usage(view.steps) if view.steps else None
    preemptions = sum(request.preemptions for request in view.requests) if view.engine is not None else None
    if view.client is not None:
        counted = [trace for trace in check(view.traces).traces if not trace.warmup]
        failed = Counter(str(trace.error) for trace in counted if trace.error is not None)
        rate = client_output_rate(counted)
        latencies = {key: _latency(metric, counted) for key, metric in _CLIENT.items()}
        seen_by, requests = "client", len(counted)
    else:
        records = view.requests
        failed = Counter(str(one.finish_reason) for one in records if one.finish_reason not in _ANSWERED)
        # The engine counts who is turned away at the door, and keeps no record of them.
        failed["refused"] = view.manifest.results.get("counters", {}).get("refused", 0)
        rate = output_tokens_per_second(records)
        latencies = {key: _latency(metric, records) for key, metric in _ENGINE.items()}
        seen_by, requests = "engine", len(records) + failed["refused"]
    return RunFigures(
        label=view.label,
        seen_by=seen_by,
        requests=requests,
        answered=requests - failed.total(),
        failed=dict((+failed).most_common()),
        output_rate=rate,
        latencies=latencies,
        usage=used,
        preemptions=preemptions,
        ledger=view.ledger,
    )


def _latency(metric: Metric[Any], records: Iterable[Any]) -> Latency:
    kept = list(records)
    values = sorted(value / 1e9 for one in kept for value in metric.values(one) or ())
    return Latency(distribution(metric, kept, PERCENTS), values)


def _words(metric: Metric[Any], seen_by: str) -> str:
    return f"[{metric.unit}, by the {seen_by}] from {metric.starts}; to {metric.stops}; over {metric.population}."
