"""The held-out loads that the simulator is validated with, and how a run of one is compared with its simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chairlift.records.client_summary import Summary

FIGURES = (
    "tokens/s",
    "TTFT p50",
    "TTFT p90",
    "TTFT p99",
    "TBT p50",
    "TBT p90",
    "TBT p99",
    "E2E p50",
    "E2E p90",
    "E2E p99",
)
"""What is compared: output tokens a second, time to first token, time between tokens, end to end."""
_METRICS = {"TTFT": "ttft_from_schedule", "TBT": "time_between_tokens", "E2E": "end_to_end_from_schedule"}


@dataclass(frozen=True)
class Cell:
    """One load under one policy."""

    name: str
    load: str
    """As key=value pairs."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """On top of those common to all."""


CHAT = "prompt=uniform prompt.min=16 prompt.max=128 output=exponential output.mean=32 output.cap=120 output.min=4"
COMMON: Mapping[str, Any] = {
    "max_model_len": 1024,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 256,
    "batch_size": 4,
    "max_batch_size": 8,
    "num_kv_blocks": 512,
    "max_queued_requests": 0,
}


def _open(rate: float, count: int) -> str:
    return f"arrivals=poisson arrivals.rate={rate} count={count} {CHAT}"


CELLS = (
    Cell("continuous, below the knee", _open(1.2, 24)),
    Cell("continuous, near the knee", _open(2.8, 48)),
    Cell("static, below the knee", _open(0.7, 16), {"policy": "static"}),
    Cell("static, near the knee", _open(1.3, 24), {"policy": "static", "release": "token"}),
    Cell("dynamic, below the knee", _open(0.6, 16), {"policy": "dynamic"}),
    Cell("dynamic, near the knee", _open(1.2, 28), {"policy": "dynamic", "release": "token"}),
    Cell(
        "continuous, KV short: preempts",
        f"arrivals=burst arrivals.size=16 {CHAT.replace('output.mean=32', 'output.mean=80')}",
        {"num_kv_blocks": 40, "watermark": 0.0},
    ),
    Cell(
        "continuous, without chunking",
        f"{_open(1.0, 24).replace('prompt.max=128', 'prompt.max=500')}",
        {"enable_chunked_prefill": False, "max_num_batched_tokens": 640, "max_model_len": 640},
    ),
    Cell("continuous, above the knee", _open(8, 56)),
    Cell("dynamic, a burst", f"arrivals=burst arrivals.size=24 {CHAT}", {"policy": "dynamic"}),
    Cell("static, offline", f"arrivals=burst arrivals.size=24 {CHAT}", {"policy": "static", "batch_size": 8}),
    Cell("continuous, a trace", ""),
)
"""The last one's load is an excerpt of a trace, whose place the caller knows."""


def figures(summary: Summary) -> dict[str, float | None]:
    """FIGURES of one run: tokens/s, and seconds. None where nobody could observe it."""
    found: dict[str, float | None] = {"tokens/s": summary.rates[0].value if summary.rates[0].count else None}
    metrics = {one.metric.name: one for one in summary.distributions}
    for name in FIGURES[1:]:
        metric, percent = name.split(" p")
        found[name] = metrics[_METRICS[metric]].percentiles.get(float(percent))
    return found


@dataclass(frozen=True)
class Compared:
    """One figure of one cell."""

    real: tuple[float, ...]
    """Of each repeat."""
    simulated: tuple[float, ...]
    """Of each repeat's load."""

    @property
    def error(self) -> float:
        """Of the mean over the repeats, relative to the real one."""
        return sum(self.simulated) / sum(self.real) - 1

    @property
    def ratios(self) -> tuple[float, ...]:
        """Simulated / real, repeat by repeat."""
        return tuple(ours / theirs for ours, theirs in zip(self.simulated, self.real, strict=True))

    @property
    def spread(self) -> float:
        """Half the range of the ratios: how far the repeats are apart where every load is the same."""
        return (max(self.ratios) - min(self.ratios)) / 2

    @property
    def within_repeats(self) -> bool:
        """Whether the repeats lie on both sides of the simulation."""
        return min(self.ratios) <= 1 <= max(self.ratios)

    def met(self, aim: float) -> bool:
        """Whether the error is within the aim, or within what repeats differ by."""
        return abs(self.error) <= aim or self.within_repeats


def compare(
    real: Sequence[Mapping[str, float | None]], simulated: Sequence[Mapping[str, float | None]]
) -> dict[str, Compared]:
    """Every figure that could be observed in all repeats."""
    found = {}
    for name in FIGURES:
        ours, theirs = [one[name] for one in simulated], [one[name] for one in real]
        known = [(a, b) for a, b in zip(theirs, ours, strict=True) if a and b]
        if known and len(known) == len(real):
            found[name] = Compared(tuple(a for a, _ in known), tuple(b for _, b in known))
    return found


def aim(figure: str) -> float:
    """A tenth for the 99th percentile, a twentieth for everything else."""
    return 0.10 if figure.endswith("p99") else 0.05
