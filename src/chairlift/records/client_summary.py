"""A client's run in figures, each with its definition: for people, for a manifest, for a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from chairlift.records import steady
from chairlift.records.client import HealthSample, RequestTrace
from chairlift.records.client_checks import Refusal, check
from chairlift.records.client_metrics import CLIENT_METRICS, PERCENTS
from chairlift.records.client_rates import (
    GOODPUT,
    OUTPUT_TOKENS,
    REQUESTS,
    TOTAL_TOKENS,
    Goodput,
    Limits,
    goodput,
    output_tokens_per_second,
    requests_per_second,
    total_tokens_per_second,
)
from chairlift.records.metrics import NOT_OBSERVABLE, Distribution, Metric, Rate, distribution
from chairlift.records.steady import LittleCheck, Stationarity, Window

_REFUSALS_KEPT: Final = 20


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run came to. Warm-up requests are sent and not counted; traces that cannot be are refused."""

    scheduled: int
    """Requests that count: due before the run's end, sent or not, warm-up left out."""
    answered: int
    """Of these, with a whole answer."""
    errors: Mapping[str, int]
    """Of these, the others by class."""
    examples: Mapping[str, str]
    """What was said to the first of each class, as far as anything was."""
    warmup: int
    """Requests that were sent and not counted."""
    refused: tuple[Refusal, ...]
    """Traces that cannot be; they are in no figure."""
    distributions: tuple[Distribution, ...]
    rates: tuple[Rate, ...]
    goodput: Goodput | None
    window: Window | None
    stationarity: Stationarity
    little: LittleCheck

    def to_json(self) -> dict[str, Any]:
        """Plain values; a figure that does not exist is null, one that nobody could observe says so."""
        return {
            "requests": {
                "scheduled": self.scheduled,
                "answered": self.answered,
                "errors": dict(self.errors),
                "error_examples": dict(self.examples),
                "warmup": self.warmup,
                "refused": len(self.refused),
                "refusals": [asdict(one) for one in self.refused[:_REFUSALS_KEPT]],
            },
            "metrics": {one.metric.name: distribution_to_json(one) for one in self.distributions},
            "rates": {rate.name: rate_to_json(rate) for rate in self.rates},
            "goodput": None if self.goodput is None else {**asdict(self.goodput), "value": self.goodput.value},
            "steady": {
                "window": None if self.window is None else asdict(self.window),
                "stationary": self.stationarity.stationary,
                "stationarity": asdict(self.stationarity),
            },
            "little": asdict(self.little),
        }


def summarize(
    traces: Iterable[RequestTrace], health: Sequence[HealthSample] = (), limits: Limits | None = None
) -> Summary:
    """All figures of a run.

    Args:
        traces: of the run, in any order.
        health: the client's samples, in order of time.
        limits: for goodput. Without them there is none, unless the load gave deadlines.
    """
    checked = check(traces)
    counted = [trace for trace in checked.traces if not trace.warmup]
    over = steady.levels(checked.traces)
    return Summary(
        scheduled=len(counted),
        answered=sum(trace.ok for trace in counted),
        errors=dict(Counter(str(trace.error) for trace in counted if trace.error is not None).most_common()),
        examples=_examples(counted),
        warmup=len(checked.traces) - len(counted),
        refused=checked.refused,
        distributions=tuple(distribution(metric, counted, PERCENTS) for metric in CLIENT_METRICS),
        rates=(output_tokens_per_second(counted), total_tokens_per_second(counted), requests_per_second(counted)),
        goodput=goodput(counted, limits) if limits or any(one.deadline is not None for one in counted) else None,
        window=steady.window(over),
        stationarity=steady.stationarity(counted, over),
        little=steady.little(checked.traces, health),
    )


def _examples(traces: Iterable[RequestTrace]) -> dict[str, str]:
    found: dict[str, str] = {}
    for trace in sorted(traces, key=lambda one: one.index):
        if trace.error is not None and trace.error_message:
            found.setdefault(str(trace.error), trace.error_message)
    return found


def definitions(metrics: Iterable[Metric[Any]] = CLIENT_METRICS) -> dict[str, str]:
    """What each figure means, by name, as one paragraph."""
    told = {one.name: f"[{one.unit}] from {one.starts}; to {one.stops}; over {one.population}." for one in metrics}
    if metrics is CLIENT_METRICS:
        told |= {
            "output_tokens_per_second": f"[tokens/s] {OUTPUT_TOKENS}.",
            "total_tokens_per_second": f"[tokens/s] {TOTAL_TOKENS}.",
            "requests_per_second": f"[requests/s] {REQUESTS}.",
            "goodput": f"[share] {GOODPUT}.",
        }
        told |= steady_definitions()
    return told


def steady_definitions() -> dict[str, str]:
    """window, stationary and little, as the module that reckons them says."""
    found: dict[str, str] = {}
    name = ""
    for line in (steady.__doc__ or "").splitlines():
        if line.startswith("    ") and not line.startswith("     "):
            name, _, rest = line.strip().partition(" ")
            found[name] = rest.strip()
        elif line.startswith("     ") and name:
            found[name] += f" {line.strip()}"
    return found


def distribution_to_json(one: Distribution) -> dict[str, Any]:
    """The figures, their unit, and how many requests are not in them."""
    return {
        "unit": one.metric.unit,
        "count": one.count,
        "requests": one.requests,
        NOT_OBSERVABLE.replace(" ", "_"): one.unobservable,
        "mean": one.mean,
        "min": one.minimum,
        **{f"p{percent:g}": value for percent, value in sorted(one.percentiles.items())},
        "max": one.maximum,
    }


def rate_to_json(rate: Rate) -> dict[str, Any]:
    """The rate and what it was made of. A zero is no rate: nothing was counted."""
    return {
        "unit": rate.unit,
        "value": rate.value if rate.count else None,
        "count": rate.count,
        "seconds": rate.seconds,
        "unknown": rate.unknown,
    }
