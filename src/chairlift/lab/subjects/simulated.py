"""A device model, for many runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from chairlift.core.config import SchedulerConfig
from chairlift.lab.client.options import RunOptions, Stop
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.runs.bench import Bench, BenchResult
from chairlift.lab.subjects.base import Settings, SubjectKind, by_name
from chairlift.lab.targets.simulated import SimulatedTarget
from chairlift.records.client_rates import Limits


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
