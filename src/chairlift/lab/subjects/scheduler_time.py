"""What the scheduler itself cost in a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from time import perf_counter_ns

from chairlift.core.config import KVCapacity, SchedulerConfig
from chairlift.core.journal import Entry, replay
from chairlift.core.plan import StepEvents, StepOutcome, StepPlan, Wait
from chairlift.core.request import Nanoseconds
from chairlift.core.scheduler import Scheduler
from chairlift.lab.runs.bench import BenchResult


def scheduler_time(journal: Iterable[Entry], config: SchedulerConfig, capacity: KVCapacity) -> tuple[Nanoseconds, int]:
    """What the scheduler itself costs: its calls of a run, made again on a new one with no device and nobody beside it.

    Returns:
        ns that plan() and commit() took in all, and steps.
    """
    scheduler = _TimedScheduler(config, capacity)
    steps = sum(isinstance(plan, StepPlan) for plan in replay(journal, scheduler))
    return scheduler.taken, steps


class _TimedScheduler(Scheduler):
    """A scheduler that adds up what planning and committing take."""

    def __init__(self, config: SchedulerConfig, capacity: KVCapacity) -> None:
        super().__init__(config, capacity)
        self.taken: Nanoseconds = 0

    def plan(self, now: Nanoseconds) -> StepPlan | Wait:
        begun = perf_counter_ns()
        plan = super().plan(now)
        self.taken += perf_counter_ns() - begun
        return plan

    def commit(self, plan: StepPlan, outcome: StepOutcome, now: Nanoseconds, times: int = 1) -> StepEvents:
        begun = perf_counter_ns()
        events = super().commit(plan, outcome, now, times)
        self.taken += perf_counter_ns() - begun
        return events


def with_scheduler_time(result: BenchResult, taken: tuple[Nanoseconds, int]) -> BenchResult:
    """The run with that in its manifest, under results.scheduler."""
    entry = result.entry
    told = {"plan_and_commit_ns": taken[0], "steps": taken[1]}
    manifest = replace(entry.manifest, results={**entry.manifest.results, "scheduler": told})
    manifest.write(entry.folder)
    return replace(result, entry=replace(entry, manifest=manifest))
