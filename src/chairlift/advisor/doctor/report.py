"""A diagnosis as lines for people, in the order in which a case is looked at; the first cause on top."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from chairlift.advisor.doctor.diagnose import Diagnosis, by_stage
from chairlift.advisor.doctor.finding import Finding, Stage
from chairlift.advisor.flags.flags import framework_names
from chairlift.advisor.flags.mapping import frameworks

_WIDTH = 110
_TITLES = {
    Stage.SYMPTOM: "symptom",
    Stage.INPUT: "input",
    Stage.CONFIGURATION: "configuration",
    Stage.RESOURCES: "resources",
    Stage.VERSION: "version",
}


def diagnosis_lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Everything that was found, and what was looked at in vain."""
    case, first = diagnosis.case, diagnosis.first
    about = " ".join(part for part in (case.server, case.version) if part)
    yield f"{case.name}{f' ({about})' if about else ''}"
    if first is None:
        yield "nothing is wrong, as far as the figures go"
    else:
        yield from _wrapped(f"first: {first.means}", "")
    yield ""
    yield "symptom"
    for one in diagnosis.symptoms:
        yield from _wrapped(f"{one.name}: {one.value}", "  ")
    if not diagnosis.symptoms:
        yield "  none that a user would notice"
    for stage, found in by_stage(diagnosis.findings).items():
        if stage is not Stage.SYMPTOM:
            yield _TITLES[stage]
        if not found and stage is not Stage.SYMPTOM:
            yield "  nothing found"
        for finding in found:
            yield from _finding(finding, diagnosis.findings.index(finding) + 1, case.server)


def theirs(server: str, setting: str) -> str:
    """What a server that is not ours calls a setting; empty where it has none or it is ours."""
    if server == "chairlift" or server not in framework_names():
        return ""
    names = {entry.name for entry in frameworks()[server].flags if entry.setting == setting}
    return " and ".join(sorted(names))


def _finding(one: Finding, rank: int, server: str) -> Iterator[str]:
    mark = "note" if one.note else f"{rank}."
    yield from _wrapped(f"{mark} {one.means} [{one.rule}, {one.confidence.value}]", "  ")
    for seen in one.seen:
        means = f" ({seen.means})" if seen.means else ""
        yield from _wrapped(f"seen: {seen.name}: {seen.value}{means}", "     ")
    for change in one.changes:
        name = theirs(server, change.setting)
        yield from _wrapped(f"change: {change}{f' ({name} there)' if name else ''}", "     ")
    if one.advice:
        yield from _wrapped(f"advice: {one.advice}", "     ")
    if one.expected:
        yield from _wrapped(f"expected: {one.expected}", "     ")
    if one.simulated:
        told = "; ".join(f"{name} {before} -> {after}" for name, (before, after) in one.simulated.items())
        yield from _wrapped(f"simulated: {told}", "     ")


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent + "   ") or [indent]
