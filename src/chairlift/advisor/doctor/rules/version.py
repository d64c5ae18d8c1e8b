"""What the version of a framework means for what was seen: defaults that changed, and what came later.

The facts stand in `data/versions.toml`, each with its source; a fact is told where its symptom was seen.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from chairlift.advisor.doctor.case import Case
from chairlift.advisor.doctor.facts import Facts
from chairlift.advisor.doctor.finding import Confidence, Finding, Seen, Stage
from chairlift.advisor.flags.mapping import version_key
from chairlift.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Changed:
    """One fact about a framework's versions."""

    framework: str
    before: str
    """Versions before this one have what is said."""
    symptom: str
    """preemptions, queue, memory, stutter, or any."""
    what: str
    advice: str
    source: str


def old_defaults(case: Case, facts: Facts) -> Iterator[Finding]:
    """The version lacks, or sets otherwise, what would help with what was seen."""
    if not case.server or not case.version:
        return
    try:
        version = version_key(case.version)
    except ConfigError:
        return
    for one in changes():
        if one.framework != case.server or version >= version_key(one.before) or not _shown(one.symptom, facts):
            continue
        yield Finding(
            "old_defaults",
            Stage.VERSION,
            f"{case.server} {case.version}: {one.what}",
            (Seen("version", case.version), Seen("changed in", one.before), Seen("source", one.source)),
            weight=0.04,
            confidence=Confidence.POSSIBLE,
            advice=one.advice,
            note=True,
        )


def _shown(symptom: str, facts: Facts) -> bool:
    if symptom == "preemptions":
        return bool(facts.preemptions)
    if symptom == "queue":
        return (facts.waiting_mean or 0) >= 1
    if symptom == "memory":
        return (facts.kv_peak or 0) > 0.9
    if symptom == "stutter":
        return facts.itl_p50 is not None and facts.itl_p99 is not None and facts.itl_p99 > 3 * facts.itl_p50
    return symptom == "any"


@cache
def changes() -> tuple[Changed, ...]:
    """From the data file."""
    text = (files("chairlift.advisor.doctor") / "data" / "versions.toml").read_text("utf-8")
    table: dict[str, Any] = tomllib.loads(text)
    return tuple(Changed(**one) for one in table["change"])
