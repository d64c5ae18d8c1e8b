"""/metrics, for Prometheus: what is going on now, what has happened, how long it took.

Names follow vLLM's with our own prefix, so that dashboards need a search-and-replace only. Gauges and counters are read
from the engine when they are scraped; histograms are filled as requests leave, by an observer on the engine's thread.
What each number means is its help text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from chairlift.core.request import FinishReason
from chairlift.engine.core import EngineStats
from chairlift.records.observer import Observer
from chairlift.records.schema import RequestRecord, StepRecord

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_SECOND: Final = 1e9
_PREFIX: Final = "chairlift:"
_LATENCY: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
_BETWEEN: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2.5, 5, 10)
_TOKENS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_ANSWERED: Final = (FinishReason.STOP, FinishReason.LENGTH)


class Metrics(Observer):
    """The server's own registry. Attach it to the engine.

    Args:
        model: the model's name, a label on everything.
        stats: the engine at one moment.
        version: of Chairlift.
    """

    def __init__(self, model: str, stats: Callable[[], EngineStats], version: str) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(model, stats, version))
        self._ttft = self._histogram(
            model,
            "time_to_first_token_seconds",
            "From a request's arrival to the release of its first token; requests that were answered.",
            _LATENCY,
        )
        self._between = self._histogram(
            model,
            "inter_token_latency_seconds",
            "From each token to the next; requests that were answered and whose every token left when it was computed.",
            _BETWEEN,
        )
        self._whole = self._histogram(
            model,
            "e2e_request_latency_seconds",
            "From a request's arrival until its result left; requests that were answered.",
            _LATENCY,
        )
        self._queued = self._histogram(
            model,
            "request_queue_time_seconds",
            "From a request's arrival until it first left the queue; all that left it.",
            _LATENCY,
        )
        self._step_tokens = self._histogram(
            model, "iteration_tokens_total", "Tokens computed in a step, padding and dead rows included.", _TOKENS
        )
        self._step_time = self._histogram(
            model, "step_device_seconds", "Time the device worked for one step.", _BETWEEN
        )

    def on_request(self, record: RequestRecord) -> None:
        if record.admitted is not None:
            self._queued.observe((record.admitted - record.arrival) / _SECOND)
        if record.finish_reason not in _ANSWERED:
            return
        self._whole.observe((record.released - record.arrival) / _SECOND)
        if record.first_token_released is not None:
            self._ttft.observe((record.first_token_released - record.arrival) / _SECOND)
        if record.streamed:
            for gap in record.gaps:
                self._between.observe(gap / _SECOND)

    def on_step(self, record: StepRecord) -> None:
        tokens = record.prefill + record.decode + record.recompute + record.padding + record.dead
        self._step_tokens.observe(tokens)
        self._step_time.observe(record.device_time / _SECOND)

    def exposition(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)

    def _histogram(self, model: str, name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
        family = Histogram(
            _PREFIX + name, meaning, labelnames=("model_name",), buckets=buckets, registry=self._registry
        )
        return family.labels(model)


class _EngineCollector(Collector):
    """Gauges and counters, read from the engine at each scrape."""

    def __init__(self, model: str, stats: Callable[[], EngineStats], version: str) -> None:
        self._model = model
        self._stats = stats
        self._version = version

    def describe(self) -> Iterator[Metric]:
        """Nothing, so that registering does not scrape."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        usage, counters, ledger = stats.usage, stats.counters, stats.ledger
        yield self._gauge("num_requests_running", "Requests in the running batch.", usage.running)
        yield self._gauge("num_requests_waiting", "Requests in the queue, preempted ones included.", usage.waiting)
        yield self._gauge("num_tokens_waiting", "Tokens to compute for those that wait.", usage.waiting_tokens)
        yield self._gauge(
            "kv_cache_usage_perc", "Share of KV blocks that requests hold; 1 is all.", usage.kv_used / usage.kv_blocks
        )
        yield self._gauge("kv_blocks", "KV blocks of the pool.", usage.kv_blocks)
        yield self._gauge("kv_blocks_cached", "KV blocks nobody holds, kept for sharing.", usage.kv_cached)
        yield self._gauge(
            "kv_positions_reserved_unused", "KV positions held and not computed.", usage.kv_reserved_unused
        )
        yield self._gauge("kv_largest_free_run", "Longest run of free KV blocks in a row.", usage.kv_largest_free_run)
        yield self._gauge("healthy", "1 while work can be scheduled.", float(stats.health.ok))
        yield self._counter("num_preemptions", "Times a request's KV blocks were taken from it.", counters.preemptions)
        yield self._counter("prompt_tokens", "Prompt tokens of accepted requests.", counters.prompt_tokens)
        yield self._counter("generation_tokens", "Generated tokens, released or not.", counters.output_tokens)
        yield self._counter("prefix_cache_queries", "Prompt tokens looked up in the cache.", counters.prefix_queries)
        yield self._counter("prefix_cache_hits", "Prompt tokens found in the cache.", counters.prefix_hits)
        yield self._counter("requests_accepted", "Requests let in.", counters.accepted)
        yield self._counter("requests_refused", "Requests turned away at the door.", counters.refused)
        yield self._counter("closed_batches", "Closed batches launched.", counters.batches)
        yield self._counter("steps", "Steps committed.", ledger.steps)
        yield self._by(
            "requests_finished",
            "Requests that ended, by how.",
            "finished_reason",
            {str(reason): count for reason, count in counters.finished.items()},
        )
        tokens = ledger.tokens
        yield self._by(
            "tokens",
            "Tokens the device computed, by kind.",
            "kind",
            {
                "prefill": tokens.prefill,
                "decode": tokens.decode,
                "recompute": tokens.recompute,
                "padding": tokens.padding,
                "dead": tokens.dead,
            },
        )
        yield self._by(
            "ledger_seconds",
            "Where the wall clock went; the categories add up to it. Device time at average cost per token.",
            "category",
            {str(category): time / _SECOND for category, time in ledger.times.items()},
        )
        yield self._counter(
            "recoverable_seconds",
            "Device time the steps would not have cost without padding and dead rows, as predicted.",
            ledger.recoverable / _SECOND,
        )
        yield self._counter("evictions", "Cached KV blocks given to somebody else.", usage.evictions)
        info = InfoMetricFamily(_PREFIX + "server", "What is running.", labels=("model_name",))
        info.add_metric((self._model,), {"version": self._version, "policy": usage.policy})
        yield info

    def _gauge(self, name: str, meaning: str, value: float) -> Metric:
        family = GaugeMetricFamily(_PREFIX + name, meaning, labels=("model_name",))
        family.add_metric((self._model,), value)
        return family

    def _counter(self, name: str, meaning: str, value: float) -> Metric:
        family = CounterMetricFamily(_PREFIX + name, meaning, labels=("model_name",))
        family.add_metric((self._model,), value)
        return family

    def _by(self, name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
        family = CounterMetricFamily(_PREFIX + name, meaning, labels=("model_name", label))
        for value, amount in values.items():
            family.add_metric((self._model, value), amount)
        return family
