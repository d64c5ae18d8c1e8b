"""A study on disk: a folder with the runs it made beneath it, and one file that says what they were for.

runs/20261130-101512-mixed/
    study.json          StudyRecord: which runs, tables, sentences, verdicts
    00-warm-up/         of a model: what was slow once; in no figure
    01-continuous/      a run's folder each, as `chairlift bench` makes them
    02-static/

The file is written anew, whole, after every run: a study that was broken off is readable up to there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

from chairlift.core.errors import RecordError

STUDY: Final = "study.json"
STUDY_SCHEMA_VERSION: Final = 1
Cell: TypeAlias = str | float | int | bool | None
"""None: not known, or not observable; the column's label or a sentence says which."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    """By which x, y and the others call it."""
    unit: str = ""
    """s, tokens/s, share, ...; empty for words and plain counts."""
    label: str = ""
    """What stands over it for people; the name where it is empty."""

    @property
    def heading(self) -> str:
        """Label and unit."""
        return f"{self.label or self.name}" + (f", {self.unit}" if self.unit else "")


@dataclass(frozen=True, slots=True)
class Table:
    """Figures of several runs. x, y, series, low, high, below and mark name columns, where a chart makes sense."""

    name: str
    """Unique in the study."""
    title: str
    """A sentence for people."""
    columns: tuple[Column, ...]
    """In order."""
    rows: tuple[tuple[Cell, ...], ...]
    """Cells in the order of the columns."""
    x: str | None = None
    """Across, in a chart."""
    y: str | None = None
    """Upwards."""
    series: str | None = None
    """One line for each of its values."""
    low: str | None = None
    """Lower end of y's interval."""
    high: str | None = None
    """Upper end of y's interval."""
    below: str | None = None
    """A second figure, upwards in a chart of its own beneath the first."""
    mark: str | None = None
    """Where a cell of this column is not empty, its point is marked with the column's heading."""

    def column(self, name: str) -> list[Cell]:
        """The cells under a name."""
        place = [one.name for one in self.columns].index(name)
        return [row[place] for row in self.rows]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found, on what evidence, and what to do."""

    verdict: str
    """One sentence."""
    evidence: str
    """The figures that it rests on, with units."""
    setting: str | None = None
    """The setting to change, as a flag; None: nothing is to be changed."""
    before: Cell = None
    """Its value in the study; called `from` in the file."""
    after: Cell = None
    """The value to try; called `to` in the file."""


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run of the study."""

    folder: str
    """Beneath the study's."""
    label: str
    """What it is called in tables."""
    policy: str | None
    """None where the target does not say."""
    settings: Mapping[str, Any]
    """What was changed for it."""


@dataclass(slots=True)
class StudyRecord:
    """What study.json holds."""

    name: str
    """baseline, uniform, mixed, burst, myths, sweep, parameters, ladder, or compare."""
    target: str
    """As the user wrote it."""
    started: str
    """Wall-clock time, ISO 8601 with offset."""
    quick: bool = False
    """A smaller size, for a first look."""
    status: Literal["running", "complete"] = "running"
    """A study that was broken off stays running."""
    runs: list[StudyRun] = field(default_factory=list)
    """In the order in which they ran."""
    tables: list[Table] = field(default_factory=list)
    """In the order in which they are to be read."""
    sentences: list[str] = field(default_factory=list)
    """What the figures say, in order."""
    verdicts: list[Verdict] = field(default_factory=list)
    """What was found, and what to change."""
    notes: list[str] = field(default_factory=list)
    """What a reader must know before believing anything of it."""
    definitions: dict[str, str] = field(default_factory=dict)
    """What each figure means, by name."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, as in the file."""
        told = asdict(self)
        for verdict in told["verdicts"]:
            verdict["from"], verdict["to"] = verdict.pop("before"), verdict.pop("after")
        return {"schema": STUDY_SCHEMA_VERSION, **told}

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The study in a folder.

        Raises:
            RecordError: there is none, it is damaged, or of a schema that this version does not know.
        """
        path = folder / STUDY
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            schema = told.pop("schema")
            if schema > STUDY_SCHEMA_VERSION:
                raise RecordError(
                    f"{path} is of schema {schema}; this version of Chairlift reads up to {STUDY_SCHEMA_VERSION}: "
                    "upgrade it."
                )
            for verdict in told["verdicts"]:
                verdict["before"], verdict["after"] = verdict.pop("from"), verdict.pop("to")
            return cls(
                **{
                    **told,
                    "runs": [StudyRun(**one) for one in told["runs"]],
                    "tables": [_table(one) for one in told["tables"]],
                    "verdicts": [Verdict(**one) for one in told["verdicts"]],
                }
            )
        except FileNotFoundError as error:
            raise RecordError(f"{folder} is no study: it has no {STUDY}.") from error
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RecordError(f"{path} cannot be read: {error}") from error


class StudyFolder:
    """A study being written.

    Args:
        folder: is made; must not hold a study.
        record: what is known at the start.

    Raises:
        RecordError: the folder holds a study already, or cannot be written.
    """

    def __init__(self, folder: Path, record: StudyRecord) -> None:
        self.folder = folder
        self.record = record
        if (folder / STUDY).exists():
            raise RecordError(f"{folder} holds a study already: name another folder with --out.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordError(f"{folder} cannot be made: {error}") from error
        self.save()

    def next_run(self, label: str) -> Path:
        """A folder for the next run."""
        slug = "".join(letter if letter.isalnum() else "-" for letter in label.lower()).strip("-")
        return self.folder / f"{len(self.record.runs) + 1:02d}-{slug[:40].rstrip('-')}"

    def save(self) -> None:
        """Write the file, whole or not at all.

        Raises:
            RecordError: it cannot be written.
        """
        try:
            beside = self.folder / f".{STUDY}.new"
            beside.write_text(json.dumps(self.record.to_json(), indent=1) + "\n", encoding="utf-8")
            beside.replace(self.folder / STUDY)
        except OSError as error:
            raise RecordError(f"{self.folder / STUDY} cannot be written: {error}") from error


def new_record(name: str, target: str, *, quick: bool) -> StudyRecord:
    """A study that starts now."""
    return StudyRecord(name, target, datetime.now(UTC).isoformat(timespec="milliseconds"), quick=quick)


def table(name: str, title: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], **chart: str) -> Table:
    """A table whose rows fit its columns.

    Raises:
        ValueError: a row has other cells than there are columns, or a chart names a column that is not there.
    """
    names = [one.name for one in columns]
    for row in rows:
        if len(row) != len(names):
            raise ValueError(f"table {name}: {len(row)} cells for {len(names)} columns.")
    for role, column in chart.items():
        if column not in names:
            raise ValueError(f"table {name}: {role} is {column!r}; there are {', '.join(names)}.")
    return Table(name, title, tuple(columns), tuple(tuple(row) for row in rows), **chart)


def _table(told: Mapping[str, Any]) -> Table:
    columns = tuple(Column(**one) for one in told["columns"])
    return Table(**{**told, "columns": columns, "rows": tuple(tuple(row) for row in told["rows"])})
