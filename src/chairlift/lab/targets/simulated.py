"""A simulated device as a target: the same load, the same records, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Final, Self

from chairlift import __version__
from chairlift.core.config import SchedulerConfig, flag
from chairlift.core.errors import ConfigError
from chairlift.devices.model import DeviceModel
from chairlift.devices.registry import find_device_model
from chairlift.engine.config import ALIASES
from chairlift.engine.recording import results
from chairlift.lab.client.options import RunOptions, Stop
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.simulation import SimulatedRun, simulate_load
from chairlift.lab.targets.base import TargetInfo
from chairlift.records.client import Observation
from chairlift.records.manifest import Manifest, plain
from chairlift.records.observer import Observer
from chairlift.records.writer import RunWriter
from chairlift.runners.simulated import SimulatorSettings

SIM: Final = "sim:"
"""What a simulated target's name begins with."""


class SimulatedTarget:
    """The scheduler on a device model.

    Each run begins at a virtual time of zero with an empty engine; nothing is left of the run before. There is no
    client that could be late and no server to sample, so what it yields are traces alone.

    Args:
        model: of the device.
        config: the scheduler's settings.
        settings: of the simulated device.

    Attributes:
        last: the last run, once it is over.
    """

    def __init__(
        self, model: DeviceModel, config: SchedulerConfig | None = None, settings: SimulatorSettings | None = None
    ) -> None:
        self.model = model
        self.config = config or SchedulerConfig()
        self.settings = settings or SimulatorSettings()
        self.last: SimulatedRun | None = None
        self._observers: tuple[Observer, ...] = ()

    @classmethod
    def load(cls, name: str, settings: Mapping[str, Any] | None = None) -> Self:
        """A device model by name, with settings by name.

        Args:
            name: `h100-sxm/llama-3.1-8b/tp2`, or the path of a device model (.toml); with or without `sim:` in front.
            settings: any field of SchedulerConfig or SimulatorSettings. Without max_model_len it is the default, or as
                much as the device model holds where that is less.

        Raises:
            ConfigError: there is no such setting in a simulation, or a value cannot be.
            DeviceModelError: as find_device_model.
        """
        device = name.removeprefix(SIM)
        if not device.endswith(".toml") and "/" not in device:
            example = f"{SIM}{device or 'h100-sxm'}/llama-3.1-8b"
            raise ConfigError(
                f"{name!r} names no model: write {SIM}DEVICE/MODEL, such as {example}, or {SIM}FILE.toml as "
                "calibrate wrote it."
            )
        model = find_device_model(device)
        given = {ALIASES.get(key, key): value for key, value in (settings or {}).items()}
        scheduler, simulator = _named(SchedulerConfig, given), _named(SimulatorSettings, given)
        if unknown := given.keys() - scheduler.keys() - simulator.keys():
            raise ConfigError(
                f"{', '.join(map(flag, sorted(unknown)))} cannot be set: {name} is a simulated device, on which "
                "nothing is computed."
            )
        config = SchedulerConfig(**scheduler)
        if "max_model_len" not in scheduler:
            config = replace(config, max_model_len=min(config.max_model_len, model.valid.context))
        return cls(model, config, SimulatorSettings(**simulator))

    @property
    def device(self) -> DeviceModel:
        """See KeepsRecords."""
        return self.model

    def attach(self, observer: Observer) -> None:
        """Show it the engine's records of later runs."""
        self._observers = (*self._observers, observer)

    def detach(self, observer: Observer) -> None:
        """No error when it is not attached any more."""
        self._observers = tuple(other for other in self._observers if other is not observer)

    async def open(self) -> TargetInfo:
        """See Target.open.

        Raises:
            ConfigError, OutOfDeviceMemory: as SimulatedRunner.of.
        """
        model, capacity = self.model, self.settings.runner(self.model, self.config).capacity()
        pool = f"KV pool: {capacity.num_blocks:,} blocks of {capacity.block_size} tokens."
        return TargetInfo(
            kind="simulator",
            name=model.name,
            model=model.model,
            version=__version__,
            prompts="as long as asked; nothing is computed",
            max_model_len=self.config.max_model_len,
            notes=(trust(model), pool),
            details={
                "policy": self.config.policy,
                "provenance": model.provenance.kind,
                "errors": dict(model.provenance.errors),
                "outside_range": self.settings.outside_range,
            },
            virtual_time=True,
        )

    async def run(
        self, schedule: Schedule, options: RunOptions | None = None, stop: Stop | None = None
    ) -> AsyncGenerator[Observation, None]:
        """See Target.run. The traces come when the simulation is over; meanwhile the event loop goes on.

        Raises:
            OutOfDeviceMemory, OutsideValidRange, EngineUnhealthy: as simulate_load.
        """
        limit = (options or RunOptions()).time_limit
        stop = stop or Stop()
        simulation = asyncio.create_task(asyncio.to_thread(self._simulate, schedule, limit, stop))
        try:
            self.last = await asyncio.shield(simulation)
        finally:
            if not simulation.done():
                stop.request()
                await asyncio.wait([simulation])
        for trace in self.last.traces:
            yield trace

    @asynccontextmanager
    async def records(self, folder: Path, client: Manifest) -> AsyncIterator[None]:
        """See KeepsRecords.records."""
        capacity = self.settings.runner(self.model, self.config).capacity()
        settings = plain(asdict(self.config)) | asdict(self.settings)
        shape = self.model.shape
        writer = RunWriter(
            folder,
            replace(
                client,
                source="simulator",
                client_schema=None,
                model={"name": self.model.model, "shape": asdict(shape) if shape else None},
                settings=settings,
                capacity=asdict(capacity),
                definitions={},
            ),
        )
        self.attach(writer)
        try:
            yield
        finally:
            await self.close()
            self.detach(writer)
            writer.close(results=None if self.last is None else engine_results(self.last))

    async def close(self) -> None:
        """Nothing is held."""

    def _simulate(self, schedule: Schedule, time_limit: int | None, stop: Stop) -> SimulatedRun:
        return simulate_load(
            schedule,
            self.model,
            self.config,
            settings=self.settings,
            observers=self._observers,
            time_limit=time_limit,
            stop=stop,
        )


def engine_results(run: SimulatedRun) -> dict[str, Any]:
    """Ledger and counters as the engine has them, and what is special to a simulation, for a manifest."""
    result = run.result
    return results(result) | {
        "refusals": {str(reason): asdict(refusals) for reason, refusals in result.refusals.items()},
        "simulation": {"plans": result.plans, "steps_outside": run.steps_outside, "warnings": list(run.warnings)},
    }


def trust(model: DeviceModel) -> str:
    """One sentence on how far a device model's times can be trusted."""
    source = model.provenance
    if not model.calibrated:
        return f"{model.name} is analytic, not calibrated: its times are estimates from data sheets."
    errors = ", ".join(f"{term} {share:.1%}" for term, share in source.errors.items())
    where = f" on {source.machine}" if source.machine else ""
    when = f" ({source.date})" if source.date else ""
    return f"{model.name} is {source.kind}{where}{when}; left-out errors of a step's time: {errors or 'not known'}."


def _named(part: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of the settings given by name, those that belong to a part."""
    names = {field.name for field in fields(part)}
    return {name: value for name, value in given.items() if name in names}
