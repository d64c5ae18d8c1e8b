"""What can be run again and again, each time with other settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from chairlift.core.config import SchedulerConfig
from chairlift.engine.config import ALIASES
from chairlift.lab.client.options import RunOptions, Stop
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.runs.bench import BenchResult
from chairlift.records.client_rates import Limits

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


def by_name(settings: Settings) -> dict[str, Any]:
    """Settings under their first names, so that a run's own replaces the subject's under whatever name."""
    return {ALIASES.get(name, name): value for name, value in settings.items()}
