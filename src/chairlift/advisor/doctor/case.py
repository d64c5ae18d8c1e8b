"""What is looked at: the records of a run, the client's and the engine's, as far as there are any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self, get_args

from chairlift.advisor.doctor.gpu import Gpu
from chairlift.core.config import KVCapacity, PolicyName, SchedulerConfig
from chairlift.core.errors import ChairliftError, RecordError
from chairlift.lab.client.recorder import read_health, read_samples, read_traces
from chairlift.lab.client.verdict import judge
from chairlift.lab.loads.files import read_table
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.runs.bench import ENGINE
from chairlift.records.client import ClientVerdict, HealthSample, RequestTrace, ServerSample
from chairlift.records.client_summary import Summary, summarize
from chairlift.records.manifest import MANIFEST, Manifest
from chairlift.records.observer import Observer
from chairlift.records.reader import Run
from chairlift.records.schema import BatchRecord, DecisionRecord, RequestRecord, StepRecord

_LISTS: Final = ("preferred_batch_sizes",)


@dataclass(frozen=True)
class Case:
    """Everything that is known. What is empty is not known."""

    name: str
    config: SchedulerConfig | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """All settings by name, those of the device included."""
    capacity: KVCapacity | None = None
    traces: Sequence[RequestTrace] = ()
    health: Sequence[HealthSample] = ()
    steps: Sequence[StepRecord] = ()
    requests: Sequence[RequestRecord] = ()
    decisions: Sequence[DecisionRecord] = ()
    batches: Sequence[BatchRecord] = ()
    samples: Sequence[ServerSample] = ()
    """What a server said of itself, in order of time."""
    load: Mapping[str, Any] = field(default_factory=dict)
    """The load's record: `load` as its table, `description` in numbers."""
    schedule: Schedule | None = None
    """The load itself, where it can be made again."""
    server: str = ""
    """Kind of a server that was asked: vllm, sglang, ..."""
    version: str = ""
    complete: bool = True
    """Whether the run came to its end."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    device: str = ""
    """The device model that a simulated run was made on, by name."""
    gpus: tuple[Gpu, ...] = ()
    """Devices, as they were during the time looked at."""

    @cached_property
    def summary(self) -> Summary | None:
        """What the client saw, in figures."""
        return summarize(self.traces, self.health) if self.traces else None

    @cached_property
    def client(self) -> ClientVerdict | None:
        """Whether the client was the bottleneck. A simulated one cannot be."""
        return judge(self.traces, self.health) if self.traces and self.health else None

    @cached_property
    def described(self) -> Mapping[str, Any]:
        """The load in numbers; empty where it was not recorded."""
        found = self.load.get("description", {})
        return found if isinstance(found, Mapping) else {}

    @classmethod
    def read(cls, folder: Path) -> Self:
        """A run's folder: a client's with or without an engine's inside, or an engine's alone.

        Raises:
            RecordError: it is no run, or damaged.
        """
        manifest = Manifest.read(folder)
        client = manifest.source == "client"
        inner = folder / ENGINE if client else folder
        engine = Run(inner) if (inner / MANIFEST).is_file() else None
        about = engine.manifest if engine is not None else manifest
        return cls(
            name=folder.name,
            config=config_of(about.settings),
            settings={**manifest.settings, **about.settings},
            capacity=_capacity_of(about.capacity),
            traces=read_traces(folder) if client else (),
            health=read_health(folder) if client else (),
            samples=read_samples(folder) if client else (),
            steps=engine.steps() if engine else (),
            requests=engine.requests() if engine else (),
            decisions=engine.decisions() if engine else (),
            batches=engine.batches() if engine else (),
            load=manifest.load,
            schedule=_schedule_of(manifest.load),
            server=str(manifest.target.get("kind", "")) if client else "chairlift",
            version=str(manifest.target.get("version", "") or manifest.chairlift),
            complete=manifest.status == "complete" and not manifest.results.get("stopped", False),
            machine=manifest.machine,
            device=str(manifest.target.get("name", "")) if manifest.target.get("kind") == "simulator" else "",
        )


class Kept(Observer):
    """Keeps an engine's records in memory, for a case without a folder."""

    def __init__(self) -> None:
        self.steps: list[StepRecord] = []
        self.requests: list[RequestRecord] = []
        self.decisions: list[DecisionRecord] = []
        self.batches: list[BatchRecord] = []

    def on_step(self, record: StepRecord) -> None:
        self.steps.append(record)

    def on_request(self, record: RequestRecord) -> None:
        self.requests.append(record)

    def on_decision(self, record: DecisionRecord) -> None:
        self.decisions.append(record)

    def on_batch(self, record: BatchRecord) -> None:
        self.batches.append(record)


def config_of(settings: Mapping[str, Any]) -> SchedulerConfig | None:
    """The scheduler's settings among others by name, or in a table of their own; None where there are none."""
    own = settings.get("scheduler", settings)
    if not isinstance(own, Mapping) or own.get("policy") not in get_args(PolicyName):
        return None
    names = {one.name for one in fields(SchedulerConfig)}
    values: dict[str, Any] = {
        name: tuple(value) if name in _LISTS else value for name, value in own.items() if name in names
    }
    try:
        return SchedulerConfig(**values)
    except (ChairliftError, TypeError) as error:
        raise RecordError(f"the run's settings cannot be: {error}") from error


def _capacity_of(table: Mapping[str, Any]) -> KVCapacity | None:
    try:
        return KVCapacity(**{one.name: table[one.name] for one in fields(KVCapacity) if one.name in table})
    except TypeError:
        return None


def _schedule_of(load: Mapping[str, Any]) -> Schedule | None:
    """None where the load was not kept, or needs files that are not there."""
    table = load.get("load")
    if not isinstance(table, Mapping):
        return None
    try:
        return Schedule(read_table(table, Path(str(load.get("folder", ".")))))
    except ChairliftError:
        return None


def counted(traces: Iterable[RequestTrace]) -> list[RequestTrace]:
    """Those that are not warm-up."""
    return [trace for trace in traces if not trace.warmup]
