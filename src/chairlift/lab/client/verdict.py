"""Whether the client was the bottleneck."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chairlift.core.request import Nanoseconds
from chairlift.lab.client.clock import MILLISECOND
from chairlift.records.client import ClientVerdict, ErrorClass, Evidence, HealthSample, RequestTrace
from chairlift.records.metrics import percentile


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Above these the client is called the bottleneck."""

    send_lag: Nanoseconds = 10 * MILLISECOND
    """99th percentile of sent - scheduled."""
    loop_lag: Nanoseconds = 10 * MILLISECOND
    """99th percentile of the event loop's lag."""
    thread_cpu: float = 0.9
    """95th percentile, over the samples, of the share of a core the client's thread used."""
    pressure: float = 0.5
    """Mean share of the time in which some task of the machine found no core. Decides nothing: it is the usual state
    of a machine that runs the server, too, and the lags say whether the client suffered."""


def judge(
    traces: Iterable[RequestTrace], samples: Sequence[HealthSample], limits: ClientLimits | None = None
) -> ClientVerdict:
    """The verdict on a run, from its records alone.

    Percentiles interpolate linearly between ranks (see chairlift.records.metrics).
    """
    limits = limits or ClientLimits()
    lags, faults = [], 0
    for trace in traces:
        if trace.send_lag is not None:
            lags.append(trace.send_lag)
        faults += trace.error is ErrorClass.CLIENT
    loop_lags = [lag for sample in samples for lag in sample.loop_lags]
    waited = sum(sample.interval for sample in samples if sample.pressure is not None)
    stalled = sum(sample.interval * sample.pressure for sample in samples if sample.pressure is not None)
    evidence = (
        Evidence(
            "send_lag_p99",
            _percentile(lags, 99),
            limits.send_lag,
            "ns",
            decides=True,
            meaning="99th percentile of sent - scheduled over all requests that were sent",
        ),
        Evidence(
            "loop_lag_p99",
            _percentile(loop_lags, 99),
            limits.loop_lag,
            "ns",
            decides=True,
            meaning="99th percentile of how late the event loop came to its heartbeats",
        ),
        Evidence(
            "thread_cpu_p95",
            _percentile([sample.thread_cpu for sample in samples], 95),
            limits.thread_cpu,
            "share",
            decides=True,
            meaning="95th percentile over the samples of the share of a core that the client's thread used",
        ),
        Evidence(
            "client_errors",
            faults,
            0,
            "count",
            decides=True,
            meaning="requests that failed by the client's own fault",
        ),
        Evidence(
            "cpu_pressure",
            stalled / waited if waited else None,
            limits.pressure,
            "share",
            decides=False,
            meaning="mean share of the time in which some task of the machine was ready and found no core",
        ),
    )
    return ClientVerdict(any(one.decides and one.exceeded for one in evidence), evidence)


def _percentile(values: Sequence[float], percent: float) -> float | None:
    return percentile(sorted(values), percent) if values else None
