"""The folder of runs: names, listing, filters."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from chairlift.core.errors import ConfigError, RecordError
from chairlift.lab.client.recorder import read_health, read_traces
from chairlift.lab.loads.units import write_duration
from chairlift.records.client import RequestTrace
from chairlift.records.client_rates import Limits
from chairlift.records.client_summary import Summary, summarize
from chairlift.records.manifest import MANIFEST, Manifest

RUNS: Final = Path("runs")
"""Where runs are kept unless told otherwise."""
_EXPRESSION: Final = re.compile(r"\s*([\w.-]+)\s*(!=|>=|<=|=|~|>|<)\s*(.*?)\s*")
_SHORT: Final[Mapping[str, str]] = {
    "load": "load.load.name",
    "target": "target.name",
    "kind": "target.kind",
    "model": "target.model",
    "policy": "target.details.policy",
}
"""Short names of what is asked for most."""
_DURATIONS: Final = frozenset(
    {"max_wait", "max_queue_delay", "target_itl", "time_limit", "sample_interval", "connect", "idle", "total"}
)
"""Settings in nanoseconds."""


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A client's run in its folder."""

    folder: Path
    manifest: Manifest

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The run in a folder.

        Raises:
            RecordError: it is none, or of a schema that this version does not know.
        """
        return cls(folder, Manifest.read(folder))

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def complete(self) -> bool:
        """Whether it was closed; one that was killed is readable up to there."""
        return self.manifest.status == "complete"

    def traces(self) -> list[RequestTrace]:
        """In the order in which the requests ended. Raises RecordError as the recorder's readers do."""
        return read_traces(self.folder)

    def summary(self, limits: Limits | None = None) -> Summary:
        """The figures, reckoned from the traces again. Raises RecordError as the recorder's readers do."""
        return summarize(self.traces(), read_health(self.folder), limits)

    def facts(self) -> dict[str, Any]:
        """Everything in the manifest but the definitions, by dotted key; and the short names."""
        manifest = self.manifest
        facts: dict[str, Any] = {
            "name": self.name,
            "started": manifest.started,
            "status": manifest.status,
            "source": manifest.source,
        }
        for part in ("target", "settings", "model", "capacity", "load", "machine", "versions", "git", "results"):
            facts |= leaves(getattr(manifest, part), part)
        for short, key in _SHORT.items():
            facts[short] = facts.get(key)
        return facts


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition on a run: KEY=VALUE, !=, ~ (contains), < > <= >= (numbers)."""

    key: str
    """A fact's dotted key, or the end of one, such as output_tokens_per_second.value."""
    relation: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """From text.

        Raises:
            ConfigError: there is no relation in it, or a number is missing.
        """
        match = _EXPRESSION.fullmatch(text)
        if match is None:
            raise ConfigError(f"--filter is {text!r}; it takes KEY=VALUE, or != ~ < > <= >= in place of =.")
        key, relation, value = match.groups()
        if relation in _NUMERIC and _number(value) is None:
            raise ConfigError(f"--filter is {text!r}; {relation} compares numbers, and {value!r} is none.")
        return cls(key, relation, value)

    def keys(self, facts: Mapping[str, Any]) -> list[str]:
        """Facts that the key means: the one of that name, or else all whose keys end in it."""
        if self.key in facts:
            return [self.key]
        return [key for key in facts if key.endswith(f".{self.key}")]

    def accepts(self, facts: Mapping[str, Any]) -> bool:
        """Whether one of the facts that are meant is so; for != none may be otherwise."""
        found = [facts[key] for key in self.keys(facts)]
        if self.relation == "!=":
            return all(_text(one) != self.value for one in found)
        return any(self._holds(one) for one in found)

    def _holds(self, fact: Any) -> bool:
        if self.relation == "=":
            return _text(fact) == self.value or (_number(fact) is not None and _number(fact) == _number(self.value))
        if self.relation == "~":
            return self.value.lower() in _text(fact).lower()
        left, right = _number(fact), _number(self.value)
        return left is not None and right is not None and _NUMERIC[self.relation](left, right)


class RunStore:
    """A folder of runs.

    Args:
        folder: need not be there.
    """

    def __init__(self, folder: Path = RUNS) -> None:
        self.folder = folder

    def new(self, load: str, now: datetime | None = None) -> Path:
        """A folder for a run that starts now, named by time (UTC) and load; it is not made yet."""
        moment = (now or datetime.now(UTC)).strftime("%Y%m%d-%H%M%S")
        slug = re.sub(r"[^a-z0-9]+", "-", load.lower()).strip("-")[:40].rstrip("-")
        name = f"{moment}-{slug}" if slug else moment
        taken = 1
        while (folder := self.folder / (name if taken == 1 else f"{name}-{taken}")).exists():
            taken += 1
        return folder

    def __iter__(self) -> Iterator[RunEntry]:
        """The client's runs, the oldest first; a folder that is no run is passed over.

        One whose manifest is damaged or of a later schema is passed over, too: see `unreadable`.

        Raises:
            RecordError: what should be the folder of runs is a file, or cannot be read.
        """
        return (one for one in self._entries() if isinstance(one, RunEntry))

    def unreadable(self) -> list[str]:
        """Why each of the others that have a manifest cannot be read."""
        return [one for one in self._entries() if isinstance(one, str)]

    def _entries(self) -> Iterator[RunEntry | str]:
        if not self.folder.exists():
            return
        try:
            folders = sorted(self.folder.iterdir())
        except OSError as error:
            raise RecordError(f"{self.folder} is no folder of runs: {error.strerror}.") from error
        for folder in folders:
            if (folder / MANIFEST).is_file():
                try:
                    entry = RunEntry.read(folder)
                except RecordError as error:
                    yield str(error)
                    continue
                if entry.manifest.source == "client":
                    yield entry

    def matching(self, filters: Iterable[Filter]) -> list[RunEntry]:
        """Runs that every filter accepts.

        Raises:
            ConfigError: no run has a fact that a filter asks for; the message has the closest.
            RecordError: as iteration.
        """
        wanted, entries = list(filters), [(entry, entry.facts()) for entry in self]
        for one in wanted:
            if entries and not any(one.keys(facts) for _, facts in entries):
                known = sorted({key for _, facts in entries for key in facts})
                near = difflib.get_close_matches(one.key, known, n=3, cutoff=0.5)
                meant = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(_SHORT)}, and more."
                raise ConfigError(f"--filter: no run has a {one.key}; {meant}")
        return [entry for entry, facts in entries if all(one.accepts(facts) for one in wanted)]

    def find(self, name: str) -> RunEntry:
        """A run by its folder, its name in the store, or an unmistakable beginning of it; `last` is the newest.

        Raises:
            RecordError: there is none, or more than one.
        """
        if (Path(name) / MANIFEST).is_file() or (self.folder / name / MANIFEST).is_file():
            here = Path(name)
            return RunEntry.read(here if (here / MANIFEST).is_file() else self.folder / name)
        entries = list(self)
        if name == "last" and entries:
            return entries[-1]
        exact = [one for one in entries if one.name == name]
        found = exact or [one for one in entries if one.name.startswith(name)]
        if len(found) != 1:
            some = ", ".join(one.name for one in found[:5]) + (", ..." if len(found) > 5 else "")
            if found:
                raise RecordError(f"{len(found)} runs in {self.folder} begin with {name!r}: {some}.")
            if Path(name).exists():
                raise RecordError(f"{name} is no run: it has no {MANIFEST}.")
            raise RecordError(
                f"there is no one run {name!r} in {self.folder}: see `chairlift runs --runs {self.folder}`."
            )
        return found[0]


def leaves(table: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The values of nested tables by dotted key."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= leaves(value, f"{path}.{key}")
        else:
            found[f"{path}.{key}"] = value
    return found


def with_unit(key: str, value: Any) -> Any:
    """A fact for people: durations, which a manifest has in nanoseconds, with a unit; all else as it is.

    Args:
        key: dotted, such as settings.max_queue_delay.
        value: of that key.
    """
    is_time = key.startswith("settings.") and key.rpartition(".")[2] in _DURATIONS
    return write_duration(value) if is_time and isinstance(value, int) and not isinstance(value, bool) else value


def _text(value: Any) -> str:
    """As people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


_NUMERIC: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
}
