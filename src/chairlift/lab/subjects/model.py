"""A model in this process, loaded once for many runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ConfigError
from chairlift.core.journal import Entry
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.config import EngineConfig
from chairlift.engine.core import EngineCore
from chairlift.engine.loader import LoadedModel, load_model
from chairlift.lab.client.options import RunOptions, Stop
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.runs.bench import Bench, BenchResult
from chairlift.lab.subjects.base import Settings, SubjectKind, by_name
from chairlift.lab.subjects.loaded import Lent, Loaded, device_of, largest_of
from chairlift.lab.subjects.scheduler_time import scheduler_time, with_scheduler_time
from chairlift.lab.targets.model import ModelTarget
from chairlift.records.client_rates import Limits


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
        self._loaded: Loaded | None = None

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
            device = device_of(configs[0])
            self._provide([config for config in configs if device_of(config) == device])

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
        runner = Lent(loaded.model.runner, self._engine_config(settings).runner.num_kv_blocks)
        journal: list[Entry] = []
        core = EngineCore(config, runner, loaded.model.tokenizer, loaded.model.sampler, journal=journal)
        target = ModelTarget(AsyncEngine(core), loaded.model.name)
        bench = Bench(target, schedule, folder, options or RunOptions(), self._given | by_name(settings), limits)
        result = await bench.run(stop)
        return with_scheduler_time(result, scheduler_time(journal, config, runner.capacity()))

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

    def _provide(self, configs: list[EngineConfig]) -> Loaded:
        """A loaded model on which each of these can run."""
        if self._loaded is None or not all(self._loaded.serves(config) for config in configs):
            before = [] if self._loaded is None else self._loaded.reserved
            self.close()  # first: two models may not fit beside each other
            reserved = [*before, *configs]
            largest = largest_of(reserved, configs[-1])
            self._loaded = Loaded(self._load(largest), reserved, largest.runner)
        return self._loaded
