"""Whether two runs had the same load, and if not, what differed. Works on what a record keeps, without the files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chairlift.core.errors import RecordError
from chairlift.lab.loads.describe import Description, describe, sample
from chairlift.lab.loads.draws import GENERATION
from chairlift.lab.loads.request import After, At, ScheduledRequest, WhenFree
from chairlift.lab.loads.schedule import Schedule

_MEASURED = (
    ("requests",),
    ("prompt", "mean"),
    ("output", "mean"),
    ("output", "cv2"),
    ("rate",),
    ("cv_of_gaps",),
    ("shared_tokens",),
)
"""What of the descriptions says most shortly how two loads differ."""
_FOR_PEOPLE = frozenset({"name"})


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """A load as a run's manifest keeps it."""

    load: Mapping[str, Any]
    """`Load.to_table()`."""
    fingerprint: str
    """Equal loads have equal ones: see `fingerprint`."""
    generation: str
    """Of the code that makes requests: the same seed means the same only within one."""
    files: Mapping[str, str]
    """sha256 by name of the files that went into it."""
    description: Mapping[str, Any]
    """`Description.to_json()`."""

    @classmethod
    def of(cls, schedule: Schedule, description: Description | None = None) -> LoadRecord:
        """Of a schedule, described already or not."""
        return cls(
            load=schedule.load.to_table(),
            fingerprint=fingerprint(schedule),
            generation=GENERATION,
            files=dict(schedule.files),
            description=(description or describe(schedule)).to_json(),
        )

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> LoadRecord:
        """What `to_json` made.

        Raises:
            RecordError: a part is missing, or is none.
        """
        for name in cls.__slots__:
            if name not in stored:
                raise RecordError(f"the record of a load has no {name!r}.")
            kind, words = (str, "text") if name in {"fingerprint", "generation"} else (dict, "an object")
            if not isinstance(stored[name], kind):
                raise RecordError(f"{name} in the record of a load is {stored[name]!r:.60}; it must be {words}.")
        return cls(**{name: stored[name] for name in cls.__slots__})

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a manifest."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not alike."""

    what: str
    """The key, such as arrivals.rate; or what was measured, such as output.mean."""
    before: Any
    """In the first load; None: absent."""
    after: Any
    """In the second load; None: absent."""

    def __str__(self) -> str:
        return f"{self.what}: {_shown(self.before)} -> {_shown(self.after)}"


@dataclass(frozen=True, slots=True)
class LoadDiff:
    """Two loads side by side."""

    same: bool
    """Whether both ask for the same requests at the same times, with the same tokens."""
    settings: tuple[Difference, ...]
    """Keys that differ. None although the loads differ: a file's content, or the code, has changed (see causes)."""
    causes: tuple[Difference, ...]
    """Files whose content differs, and the code that makes requests."""
    measured: tuple[Difference, ...]
    """How that shows in the descriptions."""

    def __str__(self) -> str:
        if self.same:
            return "the loads are the same"
        told = [*self.settings, *self.causes, *self.measured]
        return "\n".join(["the loads differ:", *(f"  {difference}" for difference in told)])


def fingerprint(schedule: Schedule) -> str:
    """sha256 of everything that a load asks for: times, order, lengths, bounds, and which tokens.

    What a target makes of it does not count: its vocabulary, the salt of a run. Of a load without an end of its own
    the first requests count, and when it ends.
    """
    load = schedule.load
    limit = None if load.bounded else load.duration
    warmup = [load.warmup_requests, load.warmup_time]
    digest = hashlib.sha256(_line([GENERATION, load.seed, load.nonce, limit, *warmup]))
    for request in sample(schedule):
        digest.update(_line(_canonical(request)))
    return digest.hexdigest()


def diff(before: LoadRecord, after: LoadRecord) -> LoadDiff:
    """What differs from one load to another."""
    old, new = dict(_leaves(before.load)), dict(_leaves(after.load))
    causes = [*_differences(dict(before.files), dict(after.files))]
    causes += _differences({"generation": before.generation}, {"generation": after.generation})
    measured = [
        Difference(".".join(path), _at(before.description, path), _at(after.description, path)) for path in _MEASURED
    ]
    return LoadDiff(
        same=before.fingerprint == after.fingerprint,
        settings=tuple(_differences(old, new)),
        causes=tuple(causes),
        measured=tuple(difference for difference in measured if difference.before != difference.after),
    )


def _canonical(request: ScheduledRequest) -> list[Any]:
    recipe = [[segment.stream, segment.number, segment.tokens] for segment in request.recipe]
    bounds = [request.output_tokens, request.max_tokens, request.ignore_eos]
    return [
        request.index,
        _start(request),
        recipe,
        bounds,
        request.priority,
        request.deadline,
        request.kind,
        request.session,
    ]


def _start(request: ScheduledRequest) -> list[Any]:
    match request.start:
        case At(due=due):
            return ["at", due]
        case After(index=index, think=think, not_before=not_before):
            return ["after", index, think, not_before]
        case WhenFree(think=think, not_before=not_before):
            return ["free", think, not_before]


def _line(values: list[Any]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode() + b"\n"


def _leaves(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        where = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from _leaves(value, where)
        elif where not in _FOR_PEOPLE:
            yield where, value


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for key in [*before, *(key for key in after if key not in before)]:
        if before.get(key) != after.get(key):
            yield Difference(key, before.get(key), after.get(key))


def _at(description: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = description
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _shown(value: Any) -> str:
    if value is None:
        return "absent"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
