"""A server by its URL, for many runs with the settings that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from chairlift.core.config import flag
from chairlift.core.errors import ConfigError
from chairlift.lab.client.options import RunOptions, Stop
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.runs.bench import Bench, BenchResult
from chairlift.lab.subjects.base import Settings, SubjectKind
from chairlift.lab.targets.base import Target
from chairlift.records.client_rates import Limits


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
