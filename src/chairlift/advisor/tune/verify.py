"""The best few settings on a real target, taking turns with the defaults; and how far the simulator was off."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from chairlift.advisor.evaluate.outcome import Latency
from chairlift.advisor.evaluate.targets import CAPACITY, Targets
from chairlift.advisor.tune.advice import Tuned
from chairlift.core.errors import ConfigError
from chairlift.lab.client.options import Stop
from chairlift.lab.runs.bench import BenchResult
from chairlift.lab.statistics import Ratio, paired_ratio
from chairlift.lab.subjects import Subject
from chairlift.records.client_summary import Summary
from chairlift.records.metrics import Distribution

DEFAULTS: Final = "defaults"
_SIMULATED: Final = ("outside_range", "block_size")


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What clients saw of one run. See Seen."""

    tokens_per_second: float
    requests_per_second: float
    ttft: Latency | None
    itl: Latency | None
    e2e: Latency | None
    met: float | None
    folder: Path
    failed: int

    @classmethod
    def of(cls, result: BenchResult) -> MeasuredRun:
        """From a run that was kept."""
        summary: Summary = result.summary
        rates = {rate.name: rate.value or 0.0 for rate in summary.rates}
        metrics = {one.metric.name: one for one in summary.distributions}
        return cls(
            tokens_per_second=rates["output_tokens_per_second"],
            requests_per_second=rates["requests_per_second"],
            ttft=_latency(metrics["ttft_from_schedule"]),
            itl=_latency(metrics["time_between_tokens"]),
            e2e=_latency(metrics["end_to_end_from_schedule"]),
            met=None if summary.goodput is None else summary.goodput.value,
            folder=result.entry.folder,
            failed=sum(summary.errors.values()),
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """Settings on the real target."""

    label: str
    """`1` to `3` by the simulator's rank, or DEFAULTS."""
    settings: Mapping[str, Any]
    predicted: float | None
    """The objective's mean by the simulator, over the rounds that ran."""
    runs: tuple[MeasuredRun, ...]
    values: tuple[float, ...]
    """The objective's in each repeat; empty where it could not be observed."""
    violation: float
    """Mean over repeats of the limit broken worst, value / limit."""

    @property
    def measured(self) -> float | None:
        """Mean over repeats."""
        return fmean(self.values) if self.values else None

    @property
    def error(self) -> float | None:
        """Of the prediction: predicted / measured - 1."""
        return self.predicted / self.measured - 1 if self.predicted is not None and self.measured else None


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of it."""

    target: str
    candidates: tuple[Candidate, ...]
    """In the simulator's order; the defaults last."""
    winner: Candidate
    against_defaults: Ratio | None
    """Objective of the winner over that of the defaults, paired by repeat; None where one cannot be observed."""

    def better(self, targets: Targets) -> bool | None:
        """Whether the winner is better than the defaults beyond noise; None where that cannot be said."""
        found = self.against_defaults
        if found is None or found.finding == "not known":
            return None
        return found.finding == ("higher" if targets.higher_is_better else "lower")


async def verify(
    subject: Subject,
    tuned: Tuned,
    folder: Path,
    *,
    repeats: int = 3,
    seed: int = 0,
    stop: Stop | None = None,
    told: Callable[[str], None] | None = None,
) -> Verified:
    """Run everybody in every repeat, in an order that is shuffled anew.

    Args:
        subject: the real target.
        tuned: what the simulator found; its best few are run, and its defaults.
        folder: where the runs are kept.
        repeats: of each; the load's rounds in turn.
        seed: of the order.
        stop: asks for an early end.
        told: called with a line before each run.

    Raises:
        ConfigError: the subject's settings cannot be changed, or the run was interrupted.
    """
    if not subject.settable:
        raise ConfigError(
            f"--verify {subject.name} is a server with settings of its own: name a model, which is started with each "
            "of the settings in turn."
        )
    if tuned.targets.objective == CAPACITY:
        raise ConfigError("--verify runs one load at its own rate: take --target goodput or a latency, not capacity.")
    if repeats < 1:
        raise ConfigError(f"--repeats is {repeats}; at least one is needed.")
    problem, targets = tuned.problem, replace(tuned.targets, margin=0.0)  # what is measured needs no reserve
    several = {str(place): one for place, one in enumerate(tuned.best, start=1) if one is not tuned.default}
    everyone = {**several, DEFAULTS: tuned.default}
    settings = {label: _on(subject, {**problem.settings, **one.settings}) for label, one in everyone.items()}
    subject.prepare(settings.values())
    runs: dict[str, list[MeasuredRun]] = {label: [] for label in everyone}
    draw = random.Random(seed)
    for repeat in range(repeats):
        order = list(everyone)
        draw.shuffle(order)
        load = tuned.load.rounds[repeat % len(tuned.load.rounds)]
        for label in order:
            if told is not None:
                told(f"repeat {repeat + 1} of {repeats}: {label}")
            schedule = load.under(tuned.space.policy)
            place = folder / f"{repeat + 1}-{label}"
            result = await subject.run(schedule, settings[label], place, limits=targets.per_request, stop=stop)
            if result.stopped:
                raise ConfigError(f"interrupted: what was run is kept in {folder}.")
            runs[label].append(MeasuredRun.of(result))
    candidates = tuple(
        _candidate(label, everyone[label].settings, _predicted(tuned, label, everyone, repeats), runs[label], targets)
        for label in everyone
    )
    winner = max(candidates, key=lambda one: _rank(one, targets))
    return Verified(subject.name, candidates, winner, _against(winner, candidates[-1]))


def _on(subject: Subject, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Without what only a simulated device has."""
    return {name: value for name, value in settings.items() if subject.kind == "sim" or name not in _SIMULATED}


def _predicted(tuned: Tuned, label: str, everyone: Mapping[str, Any], repeats: int) -> float | None:
    outcomes = everyone[label].outcomes
    figures = [outcomes[repeat % len(outcomes)].figures for repeat in range(repeats)]
    values = [None if one is None else tuned.targets.value(one) for one in figures]
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def _candidate(
    label: str,
    settings: Mapping[str, Any],
    predicted: float | None,
    runs: Sequence[MeasuredRun],
    targets: Targets,
) -> Candidate:
    values = [targets.value(one) for one in runs]
    known = tuple(value for value in values if value is not None)
    violation = fmean(min(targets.violation(one), 1e9) for one in runs)
    return Candidate(label, settings, predicted, tuple(runs), known if len(known) == len(values) else (), violation)


def _rank(one: Candidate, targets: Targets) -> tuple[int, float]:
    if one.measured is None or any(run.failed for run in one.runs):
        return (0, 0.0)
    if one.violation > 1:
        return (1, -one.violation)
    return (2, one.measured if targets.higher_is_better else -one.measured)


def _against(winner: Candidate, defaults: Candidate) -> Ratio | None:
    if not winner.values or not defaults.values or min(*winner.values, *defaults.values) <= 0:
        return None
    return paired_ratio(winner.values, defaults.values)


def _latency(one: Distribution) -> Latency | None:
    if one.mean is None or not one.observable:
        return None
    return Latency(one.mean, one.percentiles[50], one.percentiles[90], one.percentiles[99])
