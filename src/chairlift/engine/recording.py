"""Keeps a run: attaches a writer to an engine, and closes it with what the engine has to say at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from chairlift import __version__
from chairlift.core.config import SchedulerConfig
from chairlift.core.ledger import LedgerReport
from chairlift.core.state import Counters
from chairlift.engine.core import EngineCore
from chairlift.engine.loader import LoadedModel
from chairlift.records.manifest import Manifest, machine, versions
from chairlift.records.writer import RunWriter


class Recording:
    """The records of one engine from now until close().

    Args:
        core: the engine.
        loaded: the model it runs, for the manifest.
        folder: where to; must not hold another run.
        load: what will be asked of it, for the manifest.

    Raises:
        RecordError: the folder holds a run already, or cannot be written.
    """

    def __init__(
        self, core: EngineCore, loaded: LoadedModel, folder: Path, load: Mapping[str, Any] | None = None
    ) -> None:
        self._core = core
        self._writer = RunWriter(folder, manifest(core, loaded, load or {}))
        core.attach(self._writer)

    def close(self) -> None:
        """End the run. Closing again does nothing.

        Raises:
            RecordError: a file cannot be written.
        """
        self._core.detach(self._writer)
        self._writer.close(results=results(self._core.stats()))


@contextmanager
def recorded(
    core: EngineCore, loaded: LoadedModel, folder: Path | None, load: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """A recording for the length of a `with`; none without a folder."""
    recording = Recording(core, loaded, folder, load) if folder is not None else None
    try:
        yield
    finally:
        if recording is not None:
            recording.close()


def manifest(core: EngineCore, loaded: LoadedModel, load: Mapping[str, Any]) -> Manifest:
    """The head of a run of this engine that starts now."""
    shape = loaded.runner.shape()
    return Manifest(
        source="engine",
        started=datetime.now(UTC).isoformat(timespec="milliseconds"),
        clock_zero=time.time() - core.now() / 1e9,
        chairlift=__version__,
        model={"name": loaded.name, "path": str(loaded.path), "shape": asdict(shape) if shape else None},
        settings=_plain(core.config),
        capacity=asdict(core.capacity),
        load=load,
        machine=machine(),
        versions=versions(),
    )


class Accounts(Protocol):
    """Whatever has them: an engine's statistics, a simulation's result."""

    @property
    def ledger(self) -> LedgerReport: ...

    @property
    def counters(self) -> Counters: ...


def results(stats: Accounts) -> dict[str, Any]:
    """Ledger and counters at the end of a run: nanoseconds and counts."""
    ledger = stats.ledger
    return {
        "ledger": {
            "wall": ledger.wall,
            "device": ledger.device,
            "recoverable": ledger.recoverable,
            "steps": ledger.steps,
            "times": {str(category): value for category, value in ledger.times.items()},
            "tokens": asdict(ledger.tokens),
            "slots": asdict(ledger.slots),
        },
        "counters": asdict(replace(stats.counters, finished={}))
        | {"finished": {str(reason): count for reason, count in stats.counters.finished.items()}},
    }


def _plain(config: SchedulerConfig) -> dict[str, Any]:
    """Every setting, with the defaults that depend on the policy filled in."""
    return asdict(config) | {
        "kv_reservation": config.effective_kv_reservation,
        "padding": config.effective_padding,
        "release": config.effective_release,
    }
