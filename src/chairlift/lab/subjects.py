"""What can be run again and again, each time with other settings: a model in this process, a simulation, a server.

A study compares settings, so it needs more than a target, which lives for one run. A subject makes a target for each
run. Nothing of one run is left for the next: every run has an engine of its own with an empty KV pool, and prompts with
a fresh salt. (An engine that was once told that its input has ended cannot forget it.)

A server's settings are its own: it can be run again, but not otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Literal, Protocol, TypeAlias

from chairlift.core.config import KVCapacity, SchedulerConfig, flag
from chairlift.core.errors import ConfigError
from chairlift.core.journal import Entry, replay
from chairlift.core.plan import StepEvents, StepOutcome, StepPlan, Wait
from chairlift.core.request import Nanoseconds
from chairlift.core.scheduler import Scheduler
from chairlift.core.work import ModelShape
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.config import ALIASES, EngineConfig
from chairlift.engine.core import EngineCore
from chairlift.engine.loader import LoadedModel, load_model
from chairlift.lab.client.options import RunOptions, Stop
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.runs.bench import Bench, BenchResult
from chairlift.lab.targets.base import Target
from chairlift.lab.targets.model import ModelTarget
from chairlift.lab.targets.simulated import SimulatedTarget
from chairlift.records.client_rates import Limits
from chairlift.runners.base import ModelRunner
from chairlift.runners.openvino.settings import RunnerSettings, StepLimits

Settings: TypeAlias = Mapping[str, Any]
"""Fields of EngineConfig, RunnerSettings and SchedulerConfig by name."""
SubjectKind = Literal["model", "sim", "server"]


class Subject(Protocol):
    """Something that runs loads, each with settings of its own."""

    @property
    def kind(self) -> SubjectKind: ...

    @property
    def name(self) -> str:
        """As the user wrote it."""

    @property
    def settable(self) -> bool:
        """Whether its settings can be changed from run to run."""

    @property
    def given(self) -> dict[str, Any]:
        """The settings of every run, unless a run says otherwise."""

    def config(self, settings: Settings) -> SchedulerConfig | None:
        """The scheduler's settings of a run with these; None where they are not known.

        Raises:
            ConfigError: there is no such setting, a value cannot be, or settings cannot be changed.
        """

    def block_size(self) -> int | None:
        """Tokens in a KV block; None where it is not known."""

    def prepare(self, several: Iterable[Settings]) -> None:
        """Runs with all of these will come: make room for the largest of them once, so that all run on one KV pool.

        Raises:
            ConfigError, ModelError, OutOfDeviceMemory: as load_model.
        """

    async def run(
        self,
        schedule: Schedule,
        settings: Settings,
        folder: Path,
        *,
        options: RunOptions | None = None,
        limits: Limits | None = None,
        stop: Stop | None = None,
    ) -> BenchResult:
        """One run, kept in `folder`.

        Args:
            schedule: what is sent.
            settings: on top of those that the subject was made with.
            folder: must not hold another run.
            options: how the client runs.
            limits: for goodput.
            stop: asks for an early end.

        Raises:
            ConfigError: settings cannot be changed here, or cannot be; or the target cannot take the load.
            ModelError, OutOfDeviceMemory: as load_model.
            RecordError: the folder holds a run, or cannot be written.
        """

    def close(self) -> None:
        """Free what is held between runs."""


class ModelSubject:
    """A model that is loaded once. Another runner is made only for settings that need another KV pool.

    Args:
        model: see EngineConfig.model.
        settings: of every run, unless a run says otherwise.
        load: loads it.
    """

    kind: SubjectKind = "model"
    settable = True

    def __init__(
        self, model: str, settings: Settings | None = None, *, load: Callable[[EngineConfig], LoadedModel] = load_model
    ) -> None:
        self.name = model
        self._given = by_name(settings or {})
        self._load = load
        self._loaded: _Loaded | None = None

    def config(self, settings: Settings) -> SchedulerConfig:
        """See Subject.config. A max_model_len that nobody gave is fitted to the model once that is loaded."""
        config = self._engine_config(settings)
        if self._loaded is None:
            return config.scheduler
        asked, longest = config.scheduler.max_model_len, self._loaded.model.scheduler.max_model_len
        if asked <= longest:
            return config.scheduler
        if not config.fit_max_model_len:
            raise ConfigError(f"--max-model-len is {asked:,}; the model was made for {longest:,}: lower it to that.")
        return replace(config.scheduler, max_model_len=longest)

    def block_size(self) -> int:
        """See Subject.block_size."""
        return self.loaded.runner.capacity().block_size

    def prepare(self, several: Iterable[Settings]) -> None:
        """See Subject.prepare."""
        configs = [self._engine_config(settings) for settings in several]
        if configs:
            device = _device(configs[0])
            self._provide([config for config in configs if _device(config) == device])

    async def run(
        self,
        schedule: Schedule,
        settings: Settings,
        folder: Path,
        *,
        options: RunOptions | None = None,
        limits: Limits | None = None,
        stop: Stop | None = None,
    ) -> BenchResult:
        """See Subject.run. The manifest's results also have `scheduler`: what its plans and commits took."""
        loaded = self._provide([self._engine_config(settings)])
        config = self.config(settings)
        runner = _Lent(loaded.model.runner, self._engine_config(settings).runner.num_kv_blocks)
        journal: list[Entry] = []
        core = EngineCore(config, runner, loaded.model.tokenizer, loaded.model.sampler, journal=journal)
        target = ModelTarget(AsyncEngine(core), loaded.model.name)
        bench = Bench(target, schedule, folder, options or RunOptions(), self._given | by_name(settings), limits)
        result = await bench.run(stop)
        return _with_scheduler_time(result, scheduler_time(journal, config, runner.capacity()))

    @property
    def given(self) -> dict[str, Any]:
        """See Subject.given."""
        return dict(self._given)

    @property
    def loaded(self) -> LoadedModel:
        """The model, loaded now if it was not."""
        return self._provide([self._engine_config({})]).model

    def close(self) -> None:
        """Free the device."""
        if self._loaded is not None:
            self._loaded.model.runner.close()
            self._loaded = None

    def _engine_config(self, settings: Settings) -> EngineConfig:
        return EngineConfig.of(self.name, self._given | by_name(settings))

    def _provide(self, configs: list[EngineConfig]) -> _Loaded:
        """A loaded model on which each of these can run."""
        if self._loaded is None or not all(self._loaded.serves(config) for config in configs):
            before = [] if self._loaded is None else self._loaded.reserved
            self.close()  # first: two models may not fit beside each other
            reserved = [*before, *configs]
            largest = _largest(reserved, configs[-1])
            self._loaded = _Loaded(self._load(largest), reserved, largest.runner)
        return self._loaded


@dataclass(slots=True)
class _Loaded:
    """A model on the device, and what room was made for."""

    model: LoadedModel
    reserved: list[EngineConfig]
    """What it was loaded for."""
    runner: RunnerSettings
    """As it was loaded with."""
    limits: StepLimits = field(init=False)

    def __post_init__(self) -> None:
        self.limits = _limits(self.reserved)

    def serves(self, config: EngineConfig) -> bool:
        """Whether a run fits without loading again: no larger steps, the same device, no more KV blocks."""
        wanted, most = StepLimits.of(config.scheduler), self.limits
        if wanted.max_tokens > most.max_tokens or wanted.max_rows > most.max_rows:
            return False
        if wanted.max_model_len > most.max_model_len:
            return False
        blocks = config.runner.num_kv_blocks
        if blocks is None:
            return config.runner == self.runner
        device = replace(self.runner, num_kv_blocks=None)
        return _device(config) == device and blocks <= self.model.runner.capacity().num_blocks


class _Lent(ModelRunner):
    """A runner that outlives the engine, or the first blocks of its pool."""

    def __init__(self, runner: ModelRunner, num_blocks: int | None) -> None:
        self._runner = runner
        capacity = runner.capacity()
        self._capacity = capacity if num_blocks is None else replace(capacity, num_blocks=num_blocks)

    def capacity(self) -> KVCapacity:
        return self._capacity

    def shape(self) -> ModelShape | None:
        return self._runner.shape()

    def execute(self, plan: StepPlan) -> StepOutcome:
        return self._runner.execute(plan)

    def forget(self, request_id: str) -> None:
        self._runner.forget(request_id)


class SimulatedSubject:
    """A device model: every run makes its own target, in virtual time.

    Args:
        name: as the user wrote it, sim:DEVICE.
        settings: of every run, unless a run says otherwise.
    """

    kind: SubjectKind = "sim"
    settable = True

    def __init__(self, name: str, settings: Settings | None = None) -> None:
        self.name = name
        self._given = by_name(settings or {})

    @property
    def given(self) -> dict[str, Any]:
        """See Subject.given."""
        return dict(self._given)

    def config(self, settings: Settings) -> SchedulerConfig:
        """See Subject.config."""
        return SimulatedTarget.load(self.name, self._given | by_name(settings)).config

    def block_size(self) -> int:
        """See Subject.block_size."""
        return SimulatedTarget.load(self.name, self._given).settings.block_size

    def prepare(self, several: Iterable[Settings]) -> None:
        """Nothing is held: only whether the settings can be is looked at."""
        for settings in several:
            self.config(settings)

    async def run(
        self,
        schedule: Schedule,
        settings: Settings,
        folder: Path,
        *,
        options: RunOptions | None = None,
        limits: Limits | None = None,
        stop: Stop | None = None,
    ) -> BenchResult:
        """See Subject.run."""
        merged = self._given | by_name(settings)
        target = SimulatedTarget.load(self.name, merged)
        return await Bench(target, schedule, folder, options or RunOptions(), merged, limits).run(stop)

    def close(self) -> None:
        """Nothing is held."""


class ServerSubject:
    """A server by its URL.

    Args:
        name: the URL.
        make: a target for one run.
        about: how it is talked to, for the manifest; no secrets.
    """

    kind: SubjectKind = "server"
    settable = False

    def __init__(self, name: str, make: Callable[[], Target], about: Settings | None = None) -> None:
        self.name = name
        self._make = make
        self._about = dict(about or {})

    @property
    def given(self) -> dict[str, Any]:
        """None of them can be changed from here."""
        return {}

    def config(self, settings: Settings) -> None:
        """Nobody here knows its settings."""
        self._refuse(settings)

    def block_size(self) -> None:
        """Nobody here knows it."""

    def prepare(self, several: Iterable[Settings]) -> None:
        """See Subject.prepare."""
        for settings in several:
            self._refuse(settings)

    async def run(
        self,
        schedule: Schedule,
        settings: Settings,
        folder: Path,
        *,
        options: RunOptions | None = None,
        limits: Limits | None = None,
        stop: Stop | None = None,
    ) -> BenchResult:
        """See Subject.run."""
        self._refuse(settings)
        return await Bench(self._make(), schedule, folder, options or RunOptions(), self._about, limits).run(stop)

    def close(self) -> None:
        """Nothing is held."""

    def _refuse(self, settings: Settings) -> None:
        if settings:
            raise ConfigError(
                f"{', '.join(map(flag, sorted(settings)))} cannot be changed: {self.name} is a server, which has its "
                "own settings. Start it with each in turn, `chairlift bench` it, and compare with `chairlift diff`; or "
                "give the model itself as TARGET."
            )


def by_name(settings: Settings) -> dict[str, Any]:
    """Settings under their first names, so that a run's own replaces the subject's under whatever name."""
    return {ALIASES.get(name, name): value for name, value in settings.items()}


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


def _with_scheduler_time(result: BenchResult, taken: tuple[Nanoseconds, int]) -> BenchResult:
    entry = result.entry
    told = {"plan_and_commit_ns": taken[0], "steps": taken[1]}
    manifest = replace(entry.manifest, results={**entry.manifest.results, "scheduler": told})
    manifest.write(entry.folder)
    return replace(result, entry=replace(entry, manifest=manifest))


def _limits(configs: Iterable[EngineConfig]) -> StepLimits:
    """The largest step under any of these."""
    several = [StepLimits.of(config.scheduler) for config in configs]
    return StepLimits(
        max_model_len=max(one.max_model_len for one in several),
        max_tokens=max(one.max_tokens for one in several),
        max_rows=max(one.max_rows for one in several),
    )


def _largest(reserved: list[EngineConfig], like: EngineConfig) -> EngineConfig:
    """One configuration whose largest step is the largest of all, on the device of `like`."""
    limits = _limits(reserved)
    scheduler = replace(
        like.scheduler,
        max_model_len=limits.max_model_len,
        max_num_batched_tokens=limits.max_tokens,
        max_num_seqs=limits.max_rows,
    )
    blocks = [one.runner.num_kv_blocks for one in reserved if _device(one) == _device(like)]
    known = [count for count in blocks if count is not None]
    return replace(
        like,
        scheduler=scheduler,
        runner=replace(like.runner, num_kv_blocks=max(known) if len(known) == len(blocks) else None),
        fit_max_model_len=any(one.fit_max_model_len for one in reserved),
    )


def _device(config: EngineConfig) -> RunnerSettings:
    """Its device's settings, blocks aside."""
    return replace(config.runner, num_kv_blocks=None)
