"""A server's metrics page, read into the terms that are alike for all servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from chairlift.lab.targets.dialects import MetricNames
from chairlift.records.client import ServerSample

_WELL: Final = frozenset({"stop", "length"})
"""Where a server counts requests by how they ended, these are good ends."""


def read_sample(page: str, names: MetricNames, *, buckets: bool = False) -> ServerSample:
    """What a page says, without its times.

    Args:
        page: in Prometheus' text format.
        names: of the server's metrics; others are passed over before anything is parsed, as pages are long.
        buckets: keep the buckets of histograms, too.

    Raises:
        ValueError: a line of the server's is no Prometheus text.
    """
    values: dict[str, list[float]] = {}
    series: dict[str, float] = {}
    wanted = "\n".join(line for line in page.splitlines() if _wanted(line, names.prefix, buckets=buckets))
    for family in text_string_to_metric_families(wanted + "\n"):
        for one in family.samples:
            if one.labels.get("finished_reason", "stop") in _WELL:
                values.setdefault(one.name, []).append(one.value)
            series[_key(one.name, one.labels)] = one.value

    def total(names: Iterable[str]) -> float | None:
        """Added up over the server's engines and labels."""
        found = _found(values, names)
        return sum(found) if found else None

    usage = _found(values, names.kv_usage)
    return ServerSample(
        time=0,
        took=0,
        running=total(names.running),
        waiting=total(names.waiting),
        kv_usage=sum(usage) / len(usage) if usage else None,
        prompt_tokens=total(names.prompt_tokens),
        output_tokens=total(names.output_tokens),
        requests=total(names.requests),
        preemptions=total(names.preemptions),
        prefix_queries=total(names.prefix_queries),
        prefix_hits=total(names.prefix_hits),
        ttft_sum=total(names.ttft_sum),
        ttft_count=total(names.ttft_count),
        series=series,
    )


def _wanted(line: str, prefix: str, *, buckets: bool) -> bool:
    if not prefix or not line.startswith(prefix):
        return False
    name = line.partition("{")[0].partition(" ")[0]
    return not name.endswith("_created") and (buckets or not name.endswith("_bucket"))


def _found(values: Mapping[str, list[float]], names: Iterable[str]) -> list[float]:
    return next((values[name] for name in names if name in values), [])


def _key(name: str, labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inside}}}" if inside else name
