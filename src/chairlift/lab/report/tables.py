"""What a report shows in tables: figures, where the time went, what was run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chairlift.lab.report.charts import CATEGORIES
from chairlift.lab.report.figures import LATENCIES, SHORT, RunFigures
from chairlift.lab.report.scale import DASH, number, seconds, share
from chairlift.lab.report.sources import RunView
from chairlift.lab.runs.store import leaves, with_unit
from chairlift.lab.studies.folder import Table as StudyTable
from chairlift.records.metrics import NOT_OBSERVABLE

NOT_TOLD: Final = "not told"
"""A figure that the target keeps to itself."""
_PERCENTILES: Final = ("p50", "p90", "p95", "p99", "p99.9", "max")
_UNSHOWN: Final = frozenset({"settings.salt", "settings.keep_text", "target.details.policy"})
_SETTINGS: Final = ("settings.", "pool.")
_LONG: Final = 90
"""Characters of a value; more are cut."""


@dataclass(frozen=True)
class Table:
    """Cells as words. The first column names the row; the others are numbers, right-aligned, unless `words` is set or
    the column is in `wordy`.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    words: bool = False
    wordy: frozenset[int] = frozenset()
    """Columns of words among those of numbers."""
    folded: bool = False
    """Only its title is seen until a reader opens it."""


def summary_table(runs: Sequence[RunFigures]) -> Table:
    """A line a run with the main figures."""
    head = ("run", "answered", "output tokens/s", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99", "E2E p50", "E2E p99",
            "device busy", "tokens useful", "preemptions")  # fmt: skip
    rows = []
    for run in runs:
        latencies = [_percentile(run, key, percent) for key in ("ttft", "itl", "e2e") for percent in (50, 99)]
        used = run.usage
        rows.append(
            (
                run.label,
                f"{run.answered:,}/{run.requests:,}",
                _rate(run),
                *latencies,
                NOT_TOLD if used is None else share(used.busy),
                NOT_TOLD if used is None else share(used.useful),
                NOT_TOLD if run.preemptions is None else f"{run.preemptions:,}",
            )
        )
    note = ""
    if (fewest := min(run.latencies["ttft"].distribution.count for run in runs)) < 100:
        note = f"Of {fewest:,} values there is no 99th percentile: it would be the maximum in other words."
    return Table("", head, tuple(rows), note)


def ledger_table(runs: Sequence[RunFigures]) -> Table | None:
    """Seconds by category; None where no run has a ledger."""
    told = [run for run in runs if run.ledger is not None]
    if not told:
        return None
    used = {key: name for key, name in CATEGORIES.items() if any(run.ledger_seconds(key) for run in told)}
    places = 2 if any(run.ledger["wall"] >= 10e9 for run in told if run.ledger) else 3
    rows = []
    for run in told:
        books = run.ledger or {}
        spent = [run.ledger_seconds(key) or 0.0 for key in used]
        spent += [books["wall"] / 1e9, books["recoverable"] / 1e9]
        rows.append((run.label, *(f"{one:,.{places}f}" for one in spent)))
    return Table("Seconds of the wall clock", ("run", *used.values(), "sum", "recoverable"), tuple(rows))


def latency_table(runs: Sequence[RunFigures]) -> Table:
    """All percentiles that there are enough values for."""
    rows = []
    for key in LATENCIES:
        for run in runs:
            latency = run.latencies[key]
            found, told = latency.distribution, latency.percentiles
            if found.mean is None:
                why = NOT_OBSERVABLE if found.unobservable else "none"
                rows.append((f"{SHORT[key]}, {run.label}", "0", why, *([""] * len(_PERCENTILES))))
                continue
            cells = [seconds(told[one] * 1e9) if one in told else DASH for one in _PERCENTILES]
            beside = f" (and {found.unobservable:,} requests {NOT_OBSERVABLE})" if found.unobservable else ""
            count = f"{found.count:,}{beside}"
            rows.append((f"{SHORT[key]}, {run.label}", count, seconds(found.mean * 1e9), *cells))
    note = "A percentile that needs more values than there are is a dash: it would be the maximum in other words."
    return Table("", ("", "values", "mean", *_PERCENTILES), tuple(rows), note)


def study_table(table: StudyTable) -> Table:
    """A table of a study, as it stands."""
    rows = tuple(tuple(_cell(cell) for cell in row) for row in table.rows)
    wordy = {at for at in range(len(table.columns)) if any(isinstance(row[at], str) for row in table.rows)}
    return Table("", tuple(column.heading for column in table.columns), rows, wordy=frozenset(wordy))


def what_was_run(views: Sequence[RunView]) -> list[Table]:
    """What differs between runs, what they have in common, and, folded, the common settings."""
    facts = [_facts(view) for view in views]
    keys = list(dict.fromkeys(key for one in facts for key in one))
    alike = [key for key in keys if len({one.get(key, DASH) for one in facts}) == 1]
    common = [(key, facts[0][key]) for key in alike]
    unlike = tuple((key, *(one.get(key, DASH) for one in facts)) for key in keys if key not in alike)
    main = tuple(row for row in common if not row[0].startswith(_SETTINGS))
    settings = tuple(row for row in common if row[0].startswith(_SETTINGS))
    beside = " in all runs" if len(views) > 1 else ""
    tables = [
        Table("What differs", ("", *(view.label for view in views)), unlike, words=True),
        Table("The same in all runs" if beside else "", ("", ""), main, words=True),
        Table(
            f"Settings that are the same{beside}" if beside else "Settings", ("", ""), settings, words=True, folded=True
        ),
    ]
    return [table for table in tables if table.rows]


def _facts(view: RunView) -> dict[str, str]:
    """Of a run, as words by dotted key."""
    manifest = view.manifest
    load = manifest.load.get("load", manifest.load)
    described = manifest.load.get("description") or {}
    engine = {} if view.engine is None else view.engine.manifest.settings
    parts: Iterable[tuple[str, Mapping[str, Any]]] = (
        ("load", load),
        ("load", {key: described[key] for key in ("requests", "rate", "cv_of_gaps", "users") if key in described}),
        ("target", manifest.target),
        ("model", {"name": manifest.model.get("name")} if view.client is None else {}),
        ("settings", {**engine, **manifest.settings}),
        ("pool", view.engine.manifest.capacity if view.engine is not None else {}),
        ("machine", manifest.machine),
        ("version", {"chairlift": manifest.chairlift, **manifest.versions}),
        ("git", manifest.git),
    )
    facts: dict[str, str] = {"started": manifest.started[:19].replace("T", " ")}
    for name, part in parts:
        facts |= {key: _fact(with_unit(key, value)) for key, value in leaves(part, name).items() if key not in _UNSHOWN}
    return {key: value for key, value in facts.items() if value}


def _fact(value: Any) -> str:
    if value is None or value in ("", [], ()):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    words = str(value)
    return words if len(words) <= _LONG else f"{words[: _LONG - 1]}…"


def _cell(cell: Any) -> str:
    if cell is None:
        return DASH
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return number(cell) if isinstance(cell, float) else str(cell)


def _percentile(run: RunFigures, key: str, percent: float) -> str:
    found = run.latencies[key].distribution
    if not found.percentiles:
        return NOT_OBSERVABLE if found.unobservable else "none"
    value = found.told(percent)
    return DASH if value is None else seconds(value * 1e9)


def _rate(run: RunFigures) -> str:
    if run.output_rate.unknown:
        return NOT_OBSERVABLE
    return "none" if run.rate is None else number(run.rate)
