"""What came of settings on a load: figures, or a refusal with its reason. Plain values, for processes and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

RefusalKind: TypeAlias = Literal["out_of_memory", "load_does_not_fit", "setting", "outside_range", "stalled"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there are no figures."""

    kind: RefusalKind
    """out_of_memory (weights, pool or a step), load_does_not_fit (requests are turned away), setting (values that do
    not go together), outside_range (the device model does not hold there), stalled (nothing would ever end)."""
    message: str


@dataclass(frozen=True, slots=True)
class Latency:
    """One metric, in seconds."""

    mean: float
    p50: float
    p90: float
    p99: float

    def of(self, which: str) -> float:
        """mean, p50, p90 or p99."""
        value: float = getattr(self, which)
        return value


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one simulated run. Latencies as docs/metrics.md defines them for a client, from when a request was due."""

    requests: int
    """Scheduled, warm-up left out; all were answered."""
    tokens_per_second: float
    """Output tokens, from when the first request was due to the end of the last."""
    requests_per_second: float
    span: float
    """s."""
    ttft: Latency
    e2e: Latency
    itl: Latency | None
    """None where results leave together, so that nobody outside can observe it, or no answer has two tokens."""
    met: float | None
    """Share of the requests that met every limit by itself; None without limits."""
    steady: bool | None
    """Whether neither the queue nor the time to first token grew while requests came; None: too few to tell."""
    ledger: Mapping[str, float]
    """Shares of the wall clock by category; they sum to 1."""
    tokens: Mapping[str, int]
    """Computed, by kind."""
    busy: float
    """Device time / wall."""
    useful: float
    """Prefill and decode tokens / all computed."""
    recoverable: float
    """Share of the wall clock that the steps would not have cost without padding and dead rows."""
    rows: float
    """Sequences in a step, mean over the time of steps."""
    kv_peak: float
    """Most blocks that requests held / all."""
    blocks: int
    """Of the pool."""
    preemptions: int
    steps: int
    batches: int
    """Closed batches; 0 under continuous."""
    waits: Mapping[str, float]
    """s that requests spent in the queue, mean over all requests, by the reason that the scheduler gave."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one trial."""

    settings: Mapping[str, Any]
    """By name, those that were tried."""
    figures: Figures | None
    refusal: Refusal | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values; times in seconds."""
        return asdict(self)
