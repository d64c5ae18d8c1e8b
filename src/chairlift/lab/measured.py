"""One run of a study in figures: what the client saw, and where it is known what the engine did.

Every figure is defined once, in DEFINITIONS; times are seconds here, and shares are between 0 and 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from chairlift.core.request import Nanoseconds
from chairlift.lab.client.recorder import read_samples
from chairlift.lab.pressure import Pressure, of_samples, of_steps
from chairlift.lab.runs.bench import ENGINE, BenchResult
from chairlift.records.manifest import MANIFEST
from chairlift.records.metrics import Distribution
from chairlift.records.reader import Run
from chairlift.records.schema import BatchRecord, RequestRecord, StepRecord
from chairlift.records.usage import usage

_SECOND: Final = 1e9

DEFINITIONS: Final[Mapping[str, str]] = {
    "idle": "[s] time in which no request was in the engine, between the first arrival and the last result's release.",
    "held": "[s] time in which requests waited and the device did nothing because the policy waited (ledger).",
    "padding": "[share] tokens computed as padding / all tokens computed.",
    "dead": "[share] tokens computed for members of a closed batch that had ended / all tokens computed.",
    "recoverable": "[s] device time that the step predictor says the steps would not have cost without padding and "
    "dead rows (ledger). Less than their share at average cost, since eight rows cost little more than one. Where "
    "every step has the same number of rows, as under static batching, the predictor cannot tell what a row costs.",
    "reserved_unused": "[share] of the KV positions that requests held, the mean over time that no computed token of "
    "a request in progress was in: reservations ahead of time, waste in last blocks, and members that had ended. "
    "A prompt counts from its first token on; blocks that requests share are not told apart.",
    "scheduler_us": "[us] plan() and commit() of one step: the run's calls made again on a new scheduler, without a "
    "device and with nobody beside it.",
    "forecast_duration": "[ratio] forecast of a closed batch's duration before it started (an upper bound from "
    "max_tokens, by the step predictor) / what it took. Batches that left before the predictor had seen eight steps "
    "have none.",
    "prefill_gflops": "[GFLOP/s] operations of all steps that carried prompt tokens / their device time.",
    "decode_gflops": "[GFLOP/s] operations of all steps that carried none / their device time.",
    "prefill_gbs": "[GB/s] bytes of weights (as stored), keys and values that all steps with prompt tokens read and "
    "write / their device time. Activations, and weights that the device keeps in a wider format, are not counted.",
    "decode_gbs": "[GB/s] the same of all steps that carried none.",
}


@dataclass(frozen=True, slots=True)
class Phase:
    """All steps of a kind."""

    device: float
    """s."""
    gflops: float | None
    """GFLOP/s. None without such steps, or without a model whose sizes are known."""
    gbs: float | None
    """GB/s."""
    rows: float
    """Mean sequences in a step."""

    @classmethod
    def of(cls, steps: Sequence[StepRecord]) -> Phase:
        """Their sums over their device time."""
        device = sum(step.device_time for step in steps)
        flops = sum(step.prefill_flops + step.decode_flops for step in steps)
        moved = sum(step.weight_bytes + step.prefill_kv_bytes + step.decode_kv_bytes for step in steps)
        count = sum(step.repeats for step in steps)
        return cls(
            device / _SECOND,
            flops / device if device and flops else None,
            moved / device if device and moved else None,
            sum(step.rows * step.repeats for step in steps) / count if count else 0.0,
        )


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What the engine's own records say of a run."""

    steps: int
    wall: float
    """s from the first plan to the last commit."""
    busy: float | None
    useful: float | None
    tokens: Mapping[str, int]
    """Computed, by kind."""
    held: float
    idle: float
    recoverable: float
    preemptions: int
    kv_blocks: int
    kv_peak: int
    """Most blocks that requests held."""
    reserved_unused: float | None
    waiting_peak: int
    running_peak: int
    rows_mean: float
    """Rows of a step, mean over steps."""
    prefill: Phase
    decode: Phase
    largest_prefill_step: float
    """s: the longest step that carried prompt tokens while others decoded; 0 where none did."""
    batches: tuple[BatchRecord, ...]
    scheduler_us: float | None

    @property
    def computed(self) -> int:
        return sum(self.tokens.values())

    def share(self, kind: str) -> float | None:
        """Of all tokens computed, those of a kind."""
        return self.tokens[kind] / self.computed if self.computed else None


@dataclass(frozen=True)
class Measured:
    """A run of a study."""

    label: str
    policy: str | None
    settings: Mapping[str, Any]
    result: BenchResult

    @property
    def folder(self) -> Path:
        return self.result.entry.folder

    @cached_property
    def engine(self) -> EngineFigures | None:
        """None where the target keeps no records of its own here, as a server does not."""
        folder = self.folder / ENGINE
        return engine_figures(folder, self.result.entry.manifest.results) if (folder / MANIFEST).is_file() else None

    @cached_property
    def pressure(self) -> Pressure:
        """Queue, batch and memory at their highest."""
        folder = self.folder / ENGINE
        if (folder / MANIFEST).is_file():
            return of_steps(Run(folder).steps())
        return of_samples(read_samples(self.folder))

    @property
    def load(self) -> Mapping[str, Any]:
        """As its manifest keeps it, with its description."""
        return self.result.entry.manifest.load

    @property
    def answered(self) -> int:
        return self.result.summary.answered

    @property
    def failed(self) -> int:
        return sum(self.result.summary.errors.values())

    @property
    def tokens_per_second(self) -> float | None:
        """Output tokens a second; None where nothing was answered or nobody told."""
        return self._rate("output_tokens_per_second")

    @property
    def requests_per_second(self) -> float | None:
        return self._rate("requests_per_second")

    @property
    def span(self) -> float:
        """Seconds from when the first request was due to the end of the last."""
        return self.result.summary.rates[0].seconds

    def figure(self, metric: str, which: str | float) -> float | None:
        """A figure of one of the client's metrics in its unit: `mean`, `max`, or a percentile such as 99.

        None where there are no values or they are not observable.
        """
        one = self.distribution(metric)
        if not one.count or not one.observable:
            return None
        if which == "mean":
            return one.mean
        return one.maximum if which == "max" else one.percentiles[float(which)]

    def distribution(self, metric: str) -> Distribution:
        """One of the client's metrics, by name."""
        return next(one for one in self.result.summary.distributions if one.metric.name == metric)

    def finish_times(self) -> list[float]:
        """Seconds from the run's first due moment to the end of each whole answer, in order."""
        traces = [trace for trace in self.result.traces if trace.ok and not trace.warmup]
        first = min((trace.scheduled for trace in traces), default=0)
        return sorted((trace.end - first) / _SECOND for trace in traces)

    def _rate(self, name: str) -> float | None:
        rate = next(one for one in self.result.summary.rates if one.name == name)
        return rate.value if rate.count else None


def engine_figures(folder: Path, results: Mapping[str, Any]) -> EngineFigures:
    """From the engine's records.

    Args:
        folder: of those records.
        results: of the client's manifest beside them, which has the scheduler's time where that was taken.

    Raises:
        RecordError: as Run.
    """
    run = Run(folder)
    steps, requests = run.steps(), run.requests()
    ledger = run.manifest.results.get("ledger", {})
    used = usage(steps)
    wall = (steps[-1].committed - steps[0].planned) if steps else 0
    prompts = [step for step in steps if step.prefill or step.recompute]
    beside = [step.device_time for step in prompts if step.decode]
    count = sum(step.repeats for step in steps)
    times = ledger.get("times", {})
    scheduler = results.get("scheduler")
    return EngineFigures(
        steps=count,
        wall=wall / _SECOND,
        busy=used.busy,
        useful=used.useful,
        tokens={
            kind: sum(getattr(step, kind) for step in steps)
            for kind in ("prefill", "decode", "recompute", "padding", "dead")
        },
        held=times.get("held", 0) / _SECOND,
        idle=idle_time(requests) / _SECOND,
        recoverable=ledger.get("recoverable", 0) / _SECOND,
        preemptions=sum(step.preempted for step in steps),
        kv_blocks=steps[-1].kv_total if steps else 0,
        kv_peak=max((step.kv_most for step in steps), default=0),
        reserved_unused=reserved_unused(steps, requests, run.manifest.capacity.get("block_size", 0)),
        waiting_peak=max((step.waiting for step in steps), default=0),
        running_peak=max((step.running for step in steps), default=0),
        rows_mean=sum(step.rows * step.repeats for step in steps) / count if count else 0.0,
        prefill=Phase.of(prompts),
        decode=Phase.of([step for step in steps if not (step.prefill or step.recompute)]),
        largest_prefill_step=max(beside, default=0) / _SECOND,
        batches=tuple(run.batches()),
        scheduler_us=scheduler["plan_and_commit_ns"] / scheduler["steps"] / 1e3
        if scheduler and scheduler["steps"]
        else None,
    )


def idle_time(requests: Iterable[RequestRecord]) -> Nanoseconds:
    """See DEFINITIONS."""
    idle, until = 0, None
    for start, end in sorted((one.arrival, one.released) for one in requests):
        if until is not None and start > until:
            idle += start - until
        until = end if until is None else max(until, end)
    return idle


def reserved_unused(steps: Sequence[StepRecord], requests: Iterable[RequestRecord], block_size: int) -> float | None:
    """See DEFINITIONS. Blocks are held as they stood after a step until the next is committed; where one row stands for
    many steps, as the mean of before and after.
    """
    held = 0.0
    for before, after in itertools.pairwise(steps):
        blocks = before.kv_used if after.repeats == 1 else (before.kv_used + after.kv_used) / 2
        held += blocks * block_size * (after.committed - before.committed)
    if not held:
        return None
    computed = 0
    for one in requests:
        if one.first_token_computed is None:
            continue
        positions = one.prompt_tokens
        for gap in one.gaps:
            computed += positions * gap
            positions += 1
    return max(0.0, 1 - computed / held)
