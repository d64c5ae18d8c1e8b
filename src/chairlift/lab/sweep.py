"""One load on a simulated device under many settings, on all cores: every combination is a simulation of its own."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from chairlift.core.config import SchedulerConfig, flag
from chairlift.core.errors import ChairliftError, ConfigError
from chairlift.devices.model import DeviceModel
from chairlift.engine.config import ALIASES
from chairlift.lab.client.options import RunOptions
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.runs.bench import Bench
from chairlift.lab.runs.store import RunStore
from chairlift.lab.simulation import SimulatedRun, simulate_load
from chairlift.lab.simulation_figures import FiguresObserver, SimulatedFigures
from chairlift.lab.targets.simulated import SimulatedTarget
from chairlift.runners.simulated import SimulatorSettings

_METHOD: Final = "forkserver"
"""Workers begin clean, whatever threads this process has."""


@dataclass(frozen=True, slots=True)
class SimulationJob:
    """One simulation. All of it can be sent to another process."""

    model: DeviceModel
    load: Load
    config: SchedulerConfig
    settings: SimulatorSettings = field(default_factory=SimulatorSettings)
    varied: Mapping[str, Any] = field(default_factory=dict)
    """What tells it from the others: the policy, and the settings that were swept."""
    time_limit: int | None = None
    """Of virtual time, ns."""
    runs: Path | None = None
    """Keep the run in this folder of runs."""


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """What came of a job."""

    varied: Mapping[str, Any]
    figures: SimulatedFigures | None
    """None where it could not be simulated."""
    error: str = ""
    """Why not."""
    notes: tuple[str, ...] = ()
    """Steps outside the device model's range, and why requests were turned away."""
    kv_blocks: int = 0
    folder: str = ""
    """Where the run is kept."""


def combinations(
    policies: Sequence[str], swept: Mapping[str, Sequence[Any]], settings: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Settings by name of every simulation: each policy with each combination of what is swept."""
    names = [ALIASES.get(name, name) for name in swept]
    for policy in policies:
        for values in itertools.product(*swept.values()):
            yield {**settings, **dict(zip(names, values, strict=True)), "policy": policy}


def job(
    model: DeviceModel, load: Load, settings: Mapping[str, Any], varied: Sequence[str], **more: Any
) -> SimulationJob | SimulationOutcome:
    """A job from settings by name; an outcome where they cannot be.

    Args:
        model: of the device.
        load: what is simulated.
        settings: fields of SchedulerConfig and SimulatorSettings.
        varied: names of those that tell this job from the others.
        more: other fields of the job.

    Raises:
        ConfigError: there is no such setting.
    """
    parts = {part: {one.name for one in fields(part)} for part in (SchedulerConfig, SimulatorSettings)}
    if unknown := settings.keys() - set().union(*parts.values()):
        raise ConfigError(f"a simulation has no {', '.join(map(flag, sorted(unknown)))}.")
    told = {name: settings[name] for name in varied}
    scheduler, simulator = (
        {name: value for name, value in settings.items() if name in names} for names in parts.values()
    )
    try:
        config = SchedulerConfig(**scheduler)
        if "max_model_len" not in scheduler:
            config = replace(config, max_model_len=min(config.max_model_len, model.valid.context))
        return SimulationJob(model, load, config, SimulatorSettings(**simulator), told, **more)
    except ConfigError as error:
        return SimulationOutcome(told, None, str(error))


def run_job(work: SimulationJob) -> SimulationOutcome:
    """Simulate. What cannot be simulated is an outcome, too."""
    observer = FiguresObserver(work.load)
    folder = ""
    try:
        if work.runs is None:
            run = simulate_load(
                Schedule(work.load),
                work.model,
                work.config,
                settings=work.settings,
                observers=[observer],
                time_limit=work.time_limit,
                traces=False,
            )
        else:
            run, folder = _kept(work, observer)
    except ChairliftError as error:
        return SimulationOutcome(work.varied, None, str(error))
    refusals = tuple(f"{one.count:,} refused: {one.example}" for one in run.result.refusals.values())
    return SimulationOutcome(
        varied=work.varied,
        figures=observer.figures(run),
        notes=run.warnings + refusals,
        kv_blocks=run.capacity.num_blocks,
        folder=folder,
    )


def run_jobs(
    jobs: Sequence[SimulationJob], workers: int, show: Callable[[int, int], None] | None = None
) -> list[SimulationOutcome]:
    """All of them, in the order given.

    Args:
        jobs: what to simulate.
        workers: processes; with one, or for one job, it is done here.
        show: is told how many of how many are done.
    """
    if min(workers, len(jobs)) < 2:
        outcomes = []
        for done, work in enumerate(jobs, 1):
            outcomes.append(run_job(work))
            if show is not None:
                show(done, len(jobs))
        return outcomes
    context = multiprocessing.get_context(_METHOD)
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=context) as pool:
        futures = [pool.submit(run_job, work) for work in jobs]
        for done, _ in enumerate(as_completed(futures), 1):
            if show is not None:
                show(done, len(jobs))
        return [future.result() for future in futures]


def _kept(work: SimulationJob, observer: FiguresObserver) -> tuple[SimulatedRun, str]:
    """The same through a target, so that its records are like those of any run."""
    target = SimulatedTarget(work.model, work.config, work.settings)
    target.attach(observer)
    name = " ".join([work.load.name or work.load.arrivals.KIND, *map(str, work.varied.values())])
    folder = RunStore(Path() if work.runs is None else work.runs).new(name)
    bench = Bench(target, Schedule(work.load), folder, RunOptions(time_limit=work.time_limit), dict(work.varied))
    asyncio.run(bench.run())
    if target.last is None:
        raise ConfigError(f"{folder}: the simulation was broken off.")
    return target.last, str(folder)
