"""Two runs side by side: first whether their loads differ, then parameters, machine and versions, then results.

One run a side says nothing about chance: differences are shown, never called significant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from chairlift.core.errors import RecordError
from chairlift.lab.loads.compare import Difference, LoadDiff, LoadRecord, diff
from chairlift.lab.runs.store import RunEntry, leaves
from chairlift.records.metrics import ENOUGH

CAUTION: Final = (
    "one run on each side: what differs may be chance. Repeat both, in alternation, before believing a difference."
)
_FIGURES: Final = ("mean", "p50", "p90", "p99", "max")
_UNLIKE_ALWAYS: Final = frozenset({"settings.salt"})
"""Fresh for each run, so that it tells nothing."""


@dataclass(frozen=True, slots=True)
class ResultDifference:
    """One figure in both runs."""

    what: str
    unit: str
    before: float | None
    after: float | None

    @property
    def change(self) -> float | None:
        """(after - before) / before; None where one is missing or the first is 0."""
        if self.before is None or self.after is None or self.before == 0:
            return None
        return (self.after - self.before) / self.before


@dataclass(frozen=True, slots=True)
class RunDiff:
    """What differs from one run to another."""

    before: str
    after: str
    load: LoadDiff
    parameters: tuple[Difference, ...]
    """Target and settings."""
    surroundings: tuple[Difference, ...]
    """Machine, versions, git state, Chairlift itself."""
    results: tuple[ResultDifference, ...]
    notes: tuple[str, ...]
    """What a reader must know before believing anything of it."""

    @property
    def comparable(self) -> bool:
        """Whether the loads are the same and both runs were closed."""
        return self.load.same and not any("incomplete" in note for note in self.notes)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        plain = asdict(self)
        plain["results"] = [asdict(one) | {"change": one.change} for one in self.results]
        return plain | {"comparable": self.comparable}


def compare(before: RunEntry, after: RunEntry) -> RunDiff:
    """See the module.

    Raises:
        RecordError: one of the runs has no load in its manifest.
    """
    old, new = before.manifest, after.manifest
    loads = diff(_load(before), _load(after))
    parameters = [
        *_differences(old.target, new.target, "target"),
        *_differences(old.settings, new.settings, "settings"),
    ]
    surroundings = [
        *_differences({"chairlift": old.chairlift}, {"chairlift": new.chairlift}, ""),
        *_differences(old.versions, new.versions, "versions"),
        *_differences(old.machine, new.machine, "machine"),
        *_differences(old.git, new.git, "git"),
    ]
    return RunDiff(
        before.name,
        after.name,
        loads,
        tuple(parameters),
        tuple(surroundings),
        tuple(_results(old.results, new.results)),
        tuple(_notes(before, after, loads)),
    )


def _load(entry: RunEntry) -> LoadRecord:
    try:
        return LoadRecord.from_json(entry.manifest.load)
    except RecordError as error:
        raise RecordError(f"{entry.folder} cannot be compared: {error}") from error


def _notes(before: RunEntry, after: RunEntry, loads: LoadDiff) -> Iterator[str]:
    if not loads.same:
        yield "the loads differ: results differ for that reason already."
    for entry in (before, after):
        results = entry.manifest.results
        if not entry.complete:
            yield f"{entry.name} is incomplete: it was never closed, so it has no results."
        if results.get("stopped"):
            yield f"{entry.name} is incomplete: it was stopped early."
        if _at(results, "client", "bottleneck"):
            yield f"in {entry.name} the client was the bottleneck: its figures are the client's."
        if _at(results, "summary", "steady", "stationary") is False:
            yield f"{entry.name} was not stationary: its figures depend on how long it ran."
    yield CAUTION


def _differences(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[Difference]:
    old, new = ({key.lstrip("."): value for key, value in leaves(one, path).items()} for one in (before, after))
    for key in [*old, *(key for key in new if key not in old)]:
        if key not in _UNLIKE_ALWAYS and old.get(key) != new.get(key):
            yield Difference(key, old.get(key), new.get(key))


def _results(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[ResultDifference]:
    """Every figure that one of them has: rates, goodput, then the latencies."""
    old, new = _part(before, "summary"), _part(after, "summary")
    for name in ("scheduled", "answered"):
        yield ResultDifference(name, "requests", _at(old, "requests", name), _at(new, "requests", name))
    for name in _names(old, new, "rates"):
        unit = _at(old, "rates", name, "unit") or _at(new, "rates", name, "unit") or ""
        yield ResultDifference(name, unit, _at(old, "rates", name, "value"), _at(new, "rates", name, "value"))
    limits = _at(old, "goodput", "limits")
    if limits is not None and limits == _at(new, "goodput", "limits"):
        yield ResultDifference("goodput", "share", _at(old, "goodput", "value"), _at(new, "goodput", "value"))
    for name in _names(before, after, "usage"):
        one, other = _at(before, "usage", name), _at(after, "usage", name)
        if one is not None or other is not None:
            yield ResultDifference(name, "share", one, other)
    for name in _names(old, new, "metrics"):
        unit = _at(old, "metrics", name, "unit") or _at(new, "metrics", name, "unit") or ""
        for figure in _FIGURES:
            one, other = _told(_at(old, "metrics", name), figure), _told(_at(new, "metrics", name), figure)
            if one is not None or other is not None:
                yield ResultDifference(f"{name} {figure}", unit, one, other)


def _names(old: Mapping[str, Any], new: Mapping[str, Any], part: str) -> list[str]:
    return list({**_part(old, part), **_part(new, part)})


def _part(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = table.get(name)
    return found if isinstance(found, Mapping) else {}


def _told(metric: Any, figure: str) -> Any:
    """A figure of a metric; None for a percentile that there are too few values for."""
    values = _at({"metric": metric}, "metric", "count")
    if figure.startswith("p") and isinstance(values, int) and values < ENOUGH[float(figure[1:])]:
        return None
    return _at({"metric": metric}, "metric", figure)


def _at(table: Mapping[str, Any], *path: str) -> Any:
    value: Any = table
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
