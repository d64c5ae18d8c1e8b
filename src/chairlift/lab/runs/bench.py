"""One load against one target, kept as a run."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chairlift import __version__
from chairlift.core.errors import ConfigError
from chairlift.devices.peak import most_tokens_per_second
from chairlift.lab.client.options import RunOptions, Stop
from chairlift.lab.client.recorder import ClientRecorder
from chairlift.lab.client.recording import record
from chairlift.lab.client.verdict import judge
from chairlift.lab.loads.compare import LoadRecord
from chairlift.lab.loads.describe import Description, describe
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.runs.provenance import git_state
from chairlift.lab.runs.store import RunEntry
from chairlift.lab.targets.base import KeepsRecords, Target, TargetInfo
from chairlift.records.client import CLIENT_SCHEMA_VERSION, ClientVerdict, HealthSample, Observation, RequestTrace
from chairlift.records.client_rates import Limits
from chairlift.records.client_summary import Summary, definitions, summarize
from chairlift.records.manifest import Manifest, machine, plain, versions
from chairlift.records.reader import Run
from chairlift.records.usage import USAGE_DEFINITIONS, Usage, usage

ENGINE = "engine"
"""Folder of the engine's own records, inside the run's; the simulated engine's, too."""
_PACKAGES = ("aiohttp", "numpy", "openvino", "pyarrow", "tokenizers", "uvloop")


@dataclass(frozen=True, slots=True)
class BenchResult:
    """A run that has ended."""

    entry: RunEntry
    info: TargetInfo
    traces: tuple[RequestTrace, ...]
    summary: Summary
    client: ClientVerdict
    usage: Usage | None
    """Of the device, where the target keeps its engine's records."""
    stopped: bool
    """It was asked to end early; what was under way is cut."""

    @property
    def flawed(self) -> bool:
        """Whether a request failed, a trace was refused, none counts, or the client was the bottleneck."""
        summary = self.summary
        failed = bool(summary.errors or summary.refused or not summary.scheduled)
        return failed or self.client.bottleneck or self.stopped


@dataclass
class Bench:
    """What is run, and where it is kept.

    Attributes:
        target: not opened yet; it is closed at the end.
        schedule: what is sent.
        folder: must not hold another run.
        options: see RunOptions; without a salt it gets a fresh one, so that no earlier run's cache helps.
        settings: of the target, for the manifest; no secrets.
        limits: for goodput.
    """

    target: Target
    schedule: Schedule
    folder: Path
    options: RunOptions = field(default_factory=RunOptions)
    settings: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits | None = None

    async def run(
        self,
        stop: Stop | None = None,
        announce: Callable[[TargetInfo, Description], None] | None = None,
        show: Callable[[Observation], None] | None = None,
    ) -> BenchResult:
        """Run it, whatever the target does.

        Args:
            stop: asks for an early end with a whole record.
            announce: is given target and load before anything is sent.
            show: is given every observation.

        Raises:
            ConfigError: the target is not there, or cannot take the load.
            RecordError: the folder holds a run already, or cannot be written.
        """
        stop = stop or Stop()
        options = self.options if self.options.salt else replace(self.options, salt=secrets.token_hex(4))
        try:
            info = await self.target.open()
            described = describe(self.schedule)
            _check_fits(info, described)
            if announce is not None:
                announce(info, described)
            seen = _Seen(show)
            with ClientRecorder(self.folder) as recorder:
                manifest = self._manifest(info, options, described)
                manifest.write(self.folder)
                async with _own_records(self.target, self.folder / ENGINE, manifest):
                    await record(self.target.run(self.schedule, options, stop), recorder, seen)
        finally:
            await self.target.close()
        return self._close(manifest, info, seen, stopped=stop.requested)

    def _close(self, manifest: Manifest, info: TargetInfo, seen: _Seen, *, stopped: bool) -> BenchResult:
        summary = summarize(seen.traces, seen.health, self.limits)
        client = judge(seen.traces, seen.health)
        verdict = asdict(client) | {"reasons": [one.name for one in client.reasons]}
        results = {"summary": summary.to_json(), "client": verdict, "stopped": stopped}
        used = None
        if isinstance(self.target, KeepsRecords):
            device = self.target.device
            maximum = None if device is None else most_tokens_per_second(device)
            used = usage(Run(self.folder / ENGINE).steps(), maximum)
            results["usage"] = asdict(used)
        manifest = replace(
            manifest,
            status="complete",
            clock_zero=manifest.clock_zero if info.virtual_time or seen.clock_zero is None else seen.clock_zero,
            results=results,
        )
        manifest.write(self.folder)
        entry = RunEntry(self.folder, manifest)
        return BenchResult(entry, info, tuple(seen.traces), summary, client, used, stopped)

    def _manifest(self, info: TargetInfo, options: RunOptions, described: Description) -> Manifest:
        return Manifest(
            source="client",
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            clock_zero=0.0 if info.virtual_time else time.time(),
            chairlift=__version__,
            client_schema=CLIENT_SCHEMA_VERSION,
            model={"name": info.model},
            target={**asdict(info), "details": plain(info.details)},
            settings={**plain(self.settings), **asdict(options)},
            load=LoadRecord.of(self.schedule, described).to_json(),
            machine=machine(),
            versions=versions(_PACKAGES),
            git=git_state(Path.cwd()),
            definitions=definitions() | USAGE_DEFINITIONS,
        )


class _Seen:
    """Keeps what the figures are made of, and learns when the client's clock read zero."""

    def __init__(self, show: Callable[[Observation], None] | None) -> None:
        self.traces: list[RequestTrace] = []
        self.health: list[HealthSample] = []
        self.clock_zero: float | None = None
        self._show = show

    def __call__(self, observation: Observation) -> None:
        moment = None
        if isinstance(observation, RequestTrace):
            self.traces.append(observation)
            moment = observation.end
        elif isinstance(observation, HealthSample):
            self.health.append(observation)
            moment = observation.time
        if moment is not None and self.clock_zero is None:
            self.clock_zero = time.time() - moment / 1e9
        if self._show is not None:
            self._show(observation)


def _own_records(target: Target, folder: Path, client: Manifest) -> AbstractAsyncContextManager[None]:
    """The engine's records beside the client's, where the target has an engine that it can look into."""
    return target.records(folder, client) if isinstance(target, KeepsRecords) else nullcontext()


def _check_fits(info: TargetInfo, described: Description) -> None:
    limit = info.max_model_len
    if limit is not None and described.longest > limit:
        raise ConfigError(
            f"the load's longest request has {described.longest:,} tokens of prompt and max_tokens together; the "
            f"target takes {limit:,}: shorten prompt, output or max_tokens, or raise its --max-model-len."
        )
