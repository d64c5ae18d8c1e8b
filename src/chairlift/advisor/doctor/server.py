"""Facts of a server from its metrics pages: what changed between the first and the last, and how it stood between.

Names are those of the servers' documentation and sources, as in chairlift.lab.targets.dialects; where a server renamed
a metric, the newer name comes first. Percentiles come from histograms: linear inside a bucket.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from chairlift.advisor.doctor.case import Case
from chairlift.advisor.doctor.facts import Facts
from chairlift.advisor.doctor.gpu import Gpu, of_series
from chairlift.lab.targets.dialects import Dialect, recognise
from chairlift.lab.targets.prometheus import read_sample
from chairlift.records.client import ServerSample

_SECOND: Final = 1e9
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_LEAST_STUCK: Final = 5.0
"""s in which nothing was generated."""


@dataclass(frozen=True, slots=True)
class LatencyNames:
    """Histograms (or sums and counts) of a server, by their name without suffix."""

    end_to_end: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    first_token: tuple[str, ...] = ()
    between: tuple[str, ...] = ()


def _vllm_like(prefix: str) -> LatencyNames:
    return LatencyNames(
        end_to_end=(f"{prefix}e2e_request_latency_seconds",),
        queue=(f"{prefix}request_queue_time_seconds", f"{prefix}queue_time_seconds"),
        first_token=(f"{prefix}time_to_first_token_seconds",),
        between=(f"{prefix}inter_token_latency_seconds", f"{prefix}time_per_output_token_seconds"),
    )


LATENCIES: Final[Mapping[str, LatencyNames]] = {
    "vllm": _vllm_like("vllm:"),
    "chairlift": _vllm_like("chairlift:"),
    "sglang": _vllm_like("sglang:"),
    "tensorrt-llm": _vllm_like("trtllm_"),
    "tgi": LatencyNames(
        end_to_end=("tgi_request_duration",),
        queue=("tgi_request_queue_duration",),
        between=("tgi_request_mean_time_per_token_duration",),
    ),
}
_DEVICE: Final = ("prefill", "decode", "recompute", "padding", "dead")


def case_of_pages(pages: Sequence[str], *, name: str, seconds: float, kind: str = "") -> tuple[Case, Facts]:
    """From metrics pages that were saved, the oldest first; of a single one, since the server's start.

    Args:
        pages: in Prometheus' text format.
        name: of the case.
        seconds: from the first to the last.
        kind: of the server; empty: recognised by its metrics.
    """
    dialect = recognise(kind, pages[-1])
    samples = [read_sample(page, dialect.metrics, buckets=True) for page in pages]
    if len(samples) == 1:
        samples.insert(0, ServerSample(0, 0))
    stamped = [
        _at(sample, round(index * seconds * _SECOND / (len(samples) - 1))) for index, sample in enumerate(samples)
    ]
    return case_of_samples(stamped, dialect, name=name)


def case_of_samples(
    samples: Sequence[ServerSample], dialect: Dialect, *, name: str, version: str = "", gpus: tuple[Gpu, ...] = ()
) -> tuple[Case, Facts]:
    """A server that was watched; its own word on its devices goes before NVML's."""
    good = [sample for sample in samples if not sample.error]
    facts = facts_of_samples(good, dialect.kind) if len(good) > 1 else Facts()
    details = facts.details
    case = Case(
        name=name,
        server=dialect.kind,
        version=version or str(details.get("version", "")),
        samples=tuple(samples),
        gpus=(of_series(good[-1].series) if good else ()) or gpus,
    )
    return case, facts


def facts_of_samples(samples: Sequence[ServerSample], kind: str) -> Facts:
    """Of at least two samples, in order of time."""
    first, last = samples[0], samples[-1]
    wall = (last.time - first.time) / _SECOND
    change = Changes(first.series, last.series)
    values: dict[str, Any] = {"wall": wall, "details": _details(samples, kind, change)}
    values |= _levels(samples)
    for name, counter in (("preemptions", "preemptions"), ("requests", "requests")):
        values[name] = _risen(first, last, counter)
    tokens = _risen(first, last, "output_tokens")
    values["output_rate"] = tokens / wall if tokens is not None and wall else None
    queries, hits = _risen(first, last, "prefix_queries"), _risen(first, last, "prefix_hits")
    values["cached"] = hits / queries if queries and hits is not None else None
    values |= _latencies(LATENCIES.get(kind, LatencyNames()), change)
    if kind == "chairlift":
        values |= _of_chairlift(change)
    if kind == "triton":
        values |= _of_triton(change)
    if values["requests"] is not None:
        values["requests"] = round(values["requests"])
    if tokens == 0 and wall >= _LEAST_STUCK and all((one.waiting or 0) >= 1 for one in samples):
        values["details"]["stuck_for"] = wall
    return Facts(**values)


def _levels(samples: Sequence[ServerSample]) -> dict[str, Any]:
    """How it stood: means over the samples, which are evenly spaced."""
    found: dict[str, Any] = {}
    running = [one.running for one in samples if one.running is not None]
    waiting = [one.waiting for one in samples if one.waiting is not None]
    usage = [one.kv_usage for one in samples if one.kv_usage is not None]
    if running:
        found |= {"running_mean": fmean(running), "running_peak": max(running)}
    if waiting:
        found |= {
            "waiting_mean": fmean(waiting),
            "waiting_peak": max(waiting),
            "waiting_end": waiting[-1],
            "waiting_middle": waiting[len(waiting) // 2],
        }
    if usage:
        found |= {"kv_mean": fmean(usage), "kv_peak": max(usage)}
    both = [(one.running, one.waiting) for one in samples if one.running is not None and one.waiting is not None]
    if both and running and max(running) >= 1:
        full = sum(1 for ran, waited in both if waited >= 1 and ran == max(running)) / len(both)
        if full >= 0.5:
            # No metric says what the setting is. As many ran again and again, and never one more, while others waited.
            found |= {"at_limit": full, "rows_limit": round(max(running))}
    return found


def _details(samples: Sequence[ServerSample], kind: str, change: Changes) -> dict[str, Any]:
    """Labels that tell of settings, and what belongs to one kind of server."""
    found: dict[str, Any] = {}
    for series in samples[-1].series:
        if series.startswith(("vllm:cache_config_info", "chairlift:server_info", "sglang:server_info")):
            found |= dict(_LABEL.findall(series))
    if kind == "llama.cpp":
        found |= {"busy_slots": change.last("llamacpp:n_busy_slots_per_decode")}
    if kind == "triton" and (runs := change.of("nv_inference_exec_count")):
        found |= {"mean_batch": (change.of("nv_inference_count") or 0) / runs}
    return {key: value for key, value in found.items() if value is not None}


def _latencies(names: LatencyNames, change: Changes) -> dict[str, Any]:
    found = {
        "end_to_end_mean": change.mean(names.end_to_end),
        "queue_mean": change.mean(names.queue),
        "ttft_mean": change.mean(names.first_token),
        "ttft_p99": change.percentile(names.first_token, 99),
        "itl_p50": change.percentile(names.between, 50),
        "itl_p99": change.percentile(names.between, 99),
    }
    return {key: value for key, value in found.items() if value is not None}


def _of_chairlift(change: Changes) -> dict[str, Any]:
    """Our own server says where its time went."""
    times = change.by_label("chairlift:ledger_seconds_total", "category")
    tokens = change.by_label("chairlift:tokens_total", "kind")
    wall, device = sum(times.values()), sum(times.get(one, 0.0) for one in _DEVICE)
    computed = sum(tokens.values())
    found: dict[str, Any] = {}
    if wall:
        found |= {"busy": device / wall, "host": times.get("host", 0.0) / wall}
    if device:
        found |= {"padding_time": times.get("padding", 0.0) / device, "dead_time": times.get("dead", 0.0) / device}
    if computed:
        found |= {
            "useful": (tokens.get("prefill", 0.0) + tokens.get("decode", 0.0)) / computed,
            "recompute": tokens.get("recompute", 0.0) / computed,
        }
    return found


def _of_triton(change: Changes) -> dict[str, Any]:
    """Microseconds, summed over the requests that succeeded."""
    requests = change.of("nv_inference_request_success")
    if not requests:
        return {}
    queued, whole = change.of("nv_inference_queue_duration_us"), change.of("nv_inference_request_duration_us")
    return {
        "queue_mean": None if queued is None else queued / requests / 1e6,
        "end_to_end_mean": None if whole is None else whole / requests / 1e6,
    }


def _risen(first: ServerSample, last: ServerSample, name: str) -> float | None:
    after, before = getattr(last, name), getattr(first, name)
    return None if after is None else max(0.0, after - (before or 0.0))


class Changes:
    """What series rose by between two pages, added up over labels."""

    def __init__(self, first: Mapping[str, float], last: Mapping[str, float]) -> None:
        self._risen: dict[str, float] = defaultdict(float)
        self._last: dict[str, float] = defaultdict(float)
        self._labelled = {key: value - first.get(key, 0.0) for key, value in last.items()}
        for key, value in last.items():
            name = key.partition("{")[0]
            self._last[name] += value
            self._risen[name] += value - first.get(key, 0.0)

    def of(self, name: str) -> float | None:
        """By how much it rose."""
        return self._risen.get(name)

    def last(self, name: str) -> float | None:
        """Where it stands."""
        return self._last.get(name)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """By how much it rose for each value of a label."""
        found: dict[str, float] = defaultdict(float)
        for key, value in self._labelled.items():
            if key.partition("{")[0] == name and (own := dict(_LABEL.findall(key)).get(label)) is not None:
                found[own] += value
        return dict(found)

    def mean(self, names: Iterable[str]) -> float | None:
        """Sum over count of the first of these that was observed."""
        for name in names:
            count = self._risen.get(f"{name}_count")
            if count:
                return self._risen[f"{name}_sum"] / count
        return None

    def percentile(self, names: Iterable[str], percent: float) -> float | None:
        """Linear inside a bucket; None above the last bound that is finite."""
        for name in names:
            buckets = sorted(
                (float(bound.replace("+Inf", "inf")), count)
                for bound, count in self.by_label(f"{name}_bucket", "le").items()
            )
            if not buckets or not buckets[-1][1]:
                continue
            wanted = percent / 100 * buckets[-1][1]
            below, counted = 0.0, 0.0
            for bound, count in buckets:
                if count >= wanted:
                    if bound == float("inf"):
                        return None
                    return below + (bound - below) * (wanted - counted) / max(1e-12, count - counted)
                below, counted = bound, count
        return None


def _at(sample: ServerSample, time: int) -> ServerSample:
    values = {name: getattr(sample, name) for name in sample.__slots__}
    return ServerSample(**(values | {"time": time}))
