"""What a rule says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from chairlift.core.config import flag


class Stage(IntEnum):
    """The order in which a case is looked at."""

    SYMPTOM = 0
    INPUT = 1
    CONFIGURATION = 2
    RESOURCES = 3
    VERSION = 4


class Confidence(StrEnum):
    """How sure a finding is."""

    SURE = "sure"
    """Counted: the records show it directly."""
    LIKELY = "likely"
    """The figures fit this cause and the others that were looked at fit them worse."""
    POSSIBLE = "possible"
    """The figures are too few, or several causes fit."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One figure."""

    name: str
    value: str
    """With its unit."""
    means: str = ""
    """How it is defined, where the name alone could be taken for something else."""


@dataclass(frozen=True, slots=True)
class Change:
    """A setting to change."""

    setting: str
    """A field's name; empty: something that is no setting here."""
    before: Any
    after: Any

    def __str__(self) -> str:
        name = flag(self.setting) if self.setting else ""
        before = "" if self.before is None else f" from {_shown(self.before)}"
        return f"{name}{before} to {_shown(self.after)}".strip()


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause."""

    rule: str
    """Its name."""
    stage: Stage
    means: str
    """What it means, in a sentence."""
    seen: tuple[Seen, ...]
    weight: float
    """How much of the run it accounts for, 0 to 1: what weighs most comes first. Above 1: the run itself says little,
    so that other findings may be its consequence."""
    confidence: Confidence
    changes: tuple[Change, ...] = ()
    either: bool = False
    """Each of the changes would do by itself; otherwise they belong together."""
    advice: str = ""
    """What to do where it is no setting, or what to watch."""
    expected: str = ""
    """What the change should do."""
    note: bool = False
    """Worth knowing, and nothing to be cured: a run with notes alone is not sick."""
    simulated: Mapping[str, Any] = field(default_factory=dict)
    """Figures before and after the changes, on a device model."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "rule": self.rule,
            "stage": self.stage.name.lower(),
            "means": self.means,
            "seen": [{"name": one.name, "value": one.value, "means": one.means} for one in self.seen],
            "weight": round(self.weight, 4),
            "confidence": self.confidence.value,
            "changes": [
                {"setting": one.setting, "from": _plain(one.before), "to": _plain(one.after)} for one in self.changes
            ],
            "either": self.either,
            "advice": self.advice,
            "expected": self.expected,
            "note": self.note,
            "simulated": dict(self.simulated),
        }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def share(value: float) -> str:
    """A share as a percentage."""
    return f"{value:.0%}" if value >= 0.1 or value == 0 else f"{value:.1%}"


def seconds(value: float) -> str:
    """A time with three digits and a unit that fits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return "0 s" if value == 0 else f"{value / 1e-9:.3g} ns"
