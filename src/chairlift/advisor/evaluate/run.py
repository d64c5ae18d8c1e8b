"""One simulation of a load under settings, as figures or as the reason why there are none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import numpy as np

from chairlift.advisor.evaluate.outcome import Figures, Latency, Outcome, Refusal, RefusalKind
from chairlift.advisor.evaluate.rounds import Round
from chairlift.advisor.evaluate.watch import Watch
from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ChairliftError, ConfigError, EngineUnhealthy, OutOfDeviceMemory, OutsideValidRange
from chairlift.devices.model import DeviceModel
from chairlift.lab.simulation import SimulatedRun, simulate_load
from chairlift.records import steady
from chairlift.records.client import RequestTrace
from chairlift.records.client_rates import Limits, goodput
from chairlift.runners.simulated import SimulatorSettings

_SECOND: Final = 1e9
_KINDS: Final[tuple[tuple[type[ChairliftError], RefusalKind], ...]] = (
    (OutOfDeviceMemory, "out_of_memory"),
    (OutsideValidRange, "outside_range"),
    (EngineUnhealthy, "stalled"),
    (ConfigError, "setting"),
)
"""Errors that say something about the settings; any other is a fault of ours and is raised."""
_SCHEDULER: Final = frozenset(one.name for one in fields(SchedulerConfig))
_SIMULATOR: Final = frozenset(one.name for one in fields(SimulatorSettings))


@dataclass(frozen=True, slots=True)
class Problem:
    """What does not change from trial to trial."""

    device: DeviceModel
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of SchedulerConfig and SimulatorSettings, by name; a trial's own come on top."""
    limits: Limits | None = None
    """For the share of requests that met them."""
    fixed: frozenset[str] = frozenset()
    """Settings that the user has decided: a search leaves them as they are."""

    def config(self, settings: Mapping[str, Any]) -> SchedulerConfig:
        """The scheduler's settings of a trial.

        Raises:
            ConfigError: they do not go together, or there is no such setting.
        """
        return SchedulerConfig(**self._part(settings, _SCHEDULER))

    def simulator(self, settings: Mapping[str, Any]) -> SimulatorSettings:
        """The simulated device's settings of a trial."""
        return SimulatorSettings(**self._part(settings, _SIMULATOR))

    def on(self, device: DeviceModel, **settings: Any) -> Problem:
        """The same on another device, with other settings where some are given."""
        return replace(self, device=device, settings={**self.settings, **settings})

    def _part(self, settings: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
        merged = {**self.settings, **settings}
        if unknown := merged.keys() - _SCHEDULER - _SIMULATOR:
            raise ConfigError(f"there is no setting {', '.join(sorted(unknown))}.")
        return {name: value for name, value in merged.items() if name in names}


def evaluate(problem: Problem, settings: Mapping[str, Any], load: Round) -> Outcome:
    """Live through a round of a load. Without a clock: the same arguments give the same outcome."""
    watch = Watch()
    try:
        config = problem.config(settings)
        run = simulate_load(
            load.under(config.policy),
            problem.device,
            config,
            settings=problem.simulator(settings),
            observers=[watch],
        )
    except tuple(kind for kind, _ in _KINDS) as error:
        name = next(name for kind, name in _KINDS if isinstance(error, kind))
        return Outcome(settings, None, Refusal(name, str(error)))
    counted = [trace for trace in run.traces if not trace.warmup]
    failed = [trace for trace in counted if not trace.ok]
    if failed or not counted:
        why = failed[0].error_message if failed else "the load has no request in it"
        message = f"{len(failed):,} of {len(counted):,} requests are turned away: {why}"
        return Outcome(settings, None, Refusal("load_does_not_fit", message))
    return Outcome(settings, _figures(run, watch, counted, problem.limits))


def _figures(run: SimulatedRun, watch: Watch, traces: Sequence[RequestTrace], limits: Limits | None) -> Figures:
    ledger, wall = run.result.ledger, max(1, run.result.ledger.wall)
    span = (max(one.end for one in traces) - min(one.scheduled for one in traces)) / _SECOND
    tokens = ledger.tokens
    stationarity = steady.stationarity(traces, steady.levels(run.traces))
    return Figures(
        requests=len(traces),
        tokens_per_second=sum(one.output_tokens or 0 for one in traces) / span if span else 0.0,
        requests_per_second=len(traces) / span if span else 0.0,
        span=span,
        ttft=_latency([(one.first_content or one.end) - one.scheduled for one in traces]),
        e2e=_latency([one.end - one.scheduled for one in traces]),
        itl=_between_tokens(traces),
        met=None if limits is None else goodput(traces, limits).value,
        steady=stationarity.stationary,
        ledger={str(category): time / wall for category, time in ledger.times.items()},
        tokens={kind: getattr(tokens, kind) for kind in ("prefill", "decode", "recompute", "padding", "dead")},
        busy=ledger.busy,
        useful=ledger.useful,
        recoverable=ledger.recoverable / wall,
        rows=watch.rows,
        kv_peak=watch.kv_peak / run.capacity.num_blocks,
        blocks=run.capacity.num_blocks,
        preemptions=run.result.counters.preemptions,
        steps=ledger.steps,
        batches=run.result.counters.batches,
        waits={str(reason): time / _SECOND / len(traces) for reason, time in watch.waits.most_common()},
    )


def _between_tokens(traces: Iterable[RequestTrace]) -> Latency | None:
    """As records.client_metrics has it for answers that were streamed, a token a chunk; a test holds that it is the
    same.
    """
    streams = [trace.chunks.times for trace in traces if (trace.output_tokens or 0) > 1]
    if not streams or any(len(times) < 2 for times in streams):
        return None
    return _latency(np.concatenate([np.diff(np.frombuffer(times, dtype=np.int64)) for times in streams]))


def _latency(nanoseconds: Sequence[int] | np.ndarray[Any, np.dtype[np.int64]]) -> Latency:
    values = np.asarray(nanoseconds, dtype=np.float64) / _SECOND
    p50, p90, p99 = np.percentile(values, (50, 90, 99))
    return Latency(mean=float(values.mean()), p50=float(p50), p90=float(p90), p99=float(p99))
