"""What a report is made of: runs in their folders, alone, several side by side, or those of a study.

Runs come in three kinds. `chairlift bench` keeps a client's records, with the engine's own beside them in `engine/`
where the target was a model or a simulation; `chairlift demo --record` and the Python API keep an engine's; a server
elsewhere leaves a client's alone. What a kind does not have is left out of its pictures, and said to be so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from chairlift.core.errors import RecordError
from chairlift.core.request import Nanoseconds
from chairlift.lab.client.recorder import read_samples
from chairlift.lab.report.grid import Grid
from chairlift.lab.runs.bench import ENGINE
from chairlift.lab.runs.store import RunEntry, RunStore
from chairlift.lab.studies.folder import STUDY, StudyRecord
from chairlift.records.client import RequestTrace, ServerSample
from chairlift.records.manifest import MANIFEST, Manifest
from chairlift.records.reader import Run
from chairlift.records.schema import DecisionRecord, RequestRecord, StepRecord

POLICY_ORDER = ("static", "dynamic", "continuous")


class RunView:
    """One run, read when it is looked at.

    Args:
        folder: of the run.
        label: what it is called in the report.
        policy: where somebody else knows it.
        settings: what was set for it in a study.

    Raises:
        RecordError: it is none, or of a schema that this version does not know.
    """

    def __init__(
        self, folder: Path, label: str = "", policy: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = folder
        self.label = label
        self.changed = dict(settings or {})
        self.manifest = Manifest.read(folder)
        self.client = RunEntry(folder, self.manifest) if self.manifest.source == "client" else None
        beside = folder if self.client is None else folder / ENGINE
        self.engine = Run(beside) if (beside / MANIFEST).is_file() else None
        self._policy = policy

    @property
    def policy(self) -> str | None:
        """None where nobody tells: a server keeps it to itself."""
        details = self.manifest.target.get("details") or {}
        own = None if self.engine is None else self.engine.manifest.settings.get("policy")
        return self._policy or own or details.get("policy")

    @property
    def complete(self) -> bool:
        """Whether it came to its end and was closed."""
        stopped = bool(self.manifest.results.get("stopped"))
        return self.manifest.status == "complete" and not stopped and (self.engine is None or self.engine.complete)

    @property
    def load_name(self) -> str:
        """For people."""
        load = self.manifest.load
        inner = load.get("load")
        described: Mapping[str, Any] = inner if isinstance(inner, Mapping) else load
        arrivals = described.get("arrivals") or {}
        kind = arrivals.get("kind") if isinstance(arrivals, Mapping) else arrivals
        return str(described.get("name") or kind or "a load without a name")

    @property
    def load_key(self) -> str:
        """Runs with equal ones had the same load."""
        return str(self.manifest.load.get("fingerprint") or self.load_name)

    # records, read once

    @cached_property
    def traces(self) -> list[RequestTrace]:
        """What the client saw; empty without one."""
        return [] if self.client is None else self.client.traces()

    @cached_property
    def samples(self) -> list[ServerSample]:
        """What the server said of itself."""
        return [] if self.client is None else read_samples(self.folder)

    @cached_property
    def steps(self) -> list[StepRecord]:
        """The engine's; empty where the target is not ours."""
        return [] if self.engine is None else self.engine.steps()

    @cached_property
    def requests(self) -> list[RequestRecord]:
        """The engine's."""
        return [] if self.engine is None else self.engine.requests()

    @cached_property
    def decisions(self) -> list[DecisionRecord]:
        """The engine's."""
        return [] if self.engine is None else self.engine.decisions()

    @cached_property
    def grid(self) -> Grid | None:
        """Of its slots; None where the target is not ours, or the records are of an older version."""
        return None if self.engine is None else Grid.of(self.engine)

    @cached_property
    def zero(self) -> Nanoseconds:
        """The moment on the engine's clock at which its first request was due."""
        due = [request.arrival for request in self.requests]
        return min([*due, *(step.planned for step in self.steps[:1])], default=0)

    @property
    def length(self) -> Nanoseconds:
        """From the first request to the last result; of the engine's records."""
        ends = [*(request.released for request in self.requests), *(step.committed for step in self.steps[-1:])]
        return max(ends, default=self.zero) - self.zero

    @property
    def ledger(self) -> Mapping[str, Any] | None:
        """The engine's books at the end; None where there are none."""
        if self.engine is None:
            return None
        return self.engine.manifest.results.get("ledger")


@dataclass(frozen=True)
class Source:
    """What one report is about."""

    name: str
    folder: Path
    """Of the study, or of the first run."""
    runs: tuple[RunView, ...]
    """In the order in which they are shown."""
    study: StudyRecord | None = None
    missing: tuple[str, ...] = field(default=())
    """Runs of the study whose folders are not there any more, or cannot be read."""

    def groups(self) -> list[tuple[RunView, ...]]:
        """Runs by load: only those of the same load share a picture."""
        found: dict[str, list[RunView]] = {}
        for run in self.runs:
            found.setdefault(run.load_key, []).append(run)
        return [tuple(group) for group in found.values()]


def open_source(names: Sequence[str], store: RunStore) -> Source:
    """Runs by folder or by name in the store; or one study's folder.

    Raises:
        RecordError: one of them is not there, or is damaged; or a study is named beside other things.
    """
    folders = [_folder(name, store) for name in names]
    studies = [folder for folder in folders if (folder / STUDY).is_file()]
    if studies and len(folders) > 1:
        raise RecordError(
            f"{studies[0]} is a study, which has a report of its own; give it alone, or the runs beneath it."
        )
    if studies:
        return _study(studies[0])
    return Source(folders[0].name, folders[0], tuple(_labelled([RunView(folder) for folder in folders])))


def _folder(name: str, store: RunStore) -> Path:
    folder = Path(name)
    if (folder / STUDY).is_file() or (folder / MANIFEST).is_file():
        return folder.resolve()
    if (store.folder / name / STUDY).is_file():
        return (store.folder / name).resolve()
    return store.find(name).folder.resolve()


def _study(folder: Path) -> Source:
    record = StudyRecord.read(folder)
    views: list[RunView] = []
    missing: list[str] = []
    for run in record.runs:
        try:
            views.append(RunView(folder / run.folder, _unlike(run.label, views), run.policy, run.settings))
        except RecordError as error:
            missing.append(f"{run.label}: {error}")
    return Source(record.name, folder, tuple(views), record, tuple(missing))


def _unlike(label: str, before: Sequence[RunView]) -> str:
    """A label that no run before has: pictures tell runs apart by it."""
    taken, at, name = {view.label for view in before}, 1, label
    while name in taken:
        at += 1
        name = f"{label} ({at})"
    return name


def _labelled(views: list[RunView]) -> Iterable[RunView]:
    """Called by their policies where that tells them apart, else by their folders; in the policies' order."""
    policies = [(view.policy, view.load_key) for view in views]
    apart = None not in [policy for policy, _ in policies] and len(set(policies)) == len(policies)
    for view in views:
        view.label = view.policy if apart and view.policy else view.folder.name
    if not apart:
        return views
    return sorted(views, key=lambda view: POLICY_ORDER.index(view.label) if view.label in POLICY_ORDER else -1)
