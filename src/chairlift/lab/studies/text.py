"""A study as lines for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from chairlift.lab.studies.folder import Cell, Column, StudyRecord, Table, Verdict
from chairlift.lab.studies.words import NONE, number

_WIDTH: Final = 110
_MOST_ROWS: Final = 40


def study_lines(record: StudyRecord) -> Iterator[str]:
    """Tables, sentences, verdicts, notes."""
    for one in record.tables:
        yield from table_lines(one)
        yield ""
    for text in record.sentences:
        yield from _paragraph(text)
    if record.verdicts:
        yield ""
        yield "What to do:"
        for verdict in record.verdicts:
            yield from verdict_lines(verdict)
    if record.notes:
        yield ""
        for note in record.notes:
            yield from _paragraph(f"Note: {note}")


def table_lines(one: Table) -> Iterator[str]:
    """Its title, its headings, its rows; words to the left, numbers to the right. Curves stand side by side."""
    yield from textwrap.wrap(one.title, _WIDTH)
    one = _known_columns(_side_by_side(one))
    shown = one.rows[:_MOST_ROWS]
    grid = [[column.heading for column in one.columns], *([_cell(cell) for cell in row] for row in shown)]
    widths = [max(len(line[place]) for line in grid) for place in range(len(one.columns))]
    words = [all(isinstance(row[place], str) for row in shown) for place in range(len(one.columns))]
    for line in grid:
        cells = (
            f"{cell:<{width}}" if left else f"{cell:>{width}}"
            for cell, width, left in zip(line, widths, words, strict=True)
        )
        yield "  ".join(cells).rstrip()
    if len(one.rows) > len(shown):
        yield f"... and {len(one.rows) - len(shown)} rows more in study.json"


def _known_columns(one: Table) -> Table:
    """Without columns that have nothing in any row, such as what a server does not tell."""
    kept = [i for i in range(len(one.columns)) if not one.rows or any(row[i] is not None for row in one.rows)]
    rows = tuple(tuple(row[i] for i in kept) for row in one.rows)
    return Table(one.name, one.title, tuple(one.columns[i] for i in kept), rows)


def _side_by_side(one: Table) -> Table:
    """A table of nothing but x, series and y, with a column for each series."""
    if one.x is None or one.y is None or one.series is None or len(one.columns) != 3:
        return one
    by_name = {column.name: column for column in one.columns}
    xs, names = list(dict.fromkeys(one.column(one.x))), list(dict.fromkeys(one.column(one.series)))
    places = zip(one.column(one.x), one.column(one.series), one.column(one.y), strict=True)
    cells = {(x, name): y for x, name, y in places}
    columns = (by_name[one.x], *(Column(str(name), by_name[one.y].unit) for name in names))
    return Table(one.name, one.title, columns, tuple((x, *(cells.get((x, name)) for name in names)) for x in xs))


def verdict_lines(verdict: Verdict) -> Iterator[str]:
    """What was found, why that is believed, and what to change."""
    yield from textwrap.wrap(verdict.verdict, _WIDTH, initial_indent="- ", subsequent_indent="  ")
    yield from textwrap.wrap(f"seen: {verdict.evidence}", _WIDTH, initial_indent="  ", subsequent_indent="        ")
    if verdict.setting is not None:
        change = f"change: {verdict.setting} from {_cell(verdict.before)} to {_cell(verdict.after)}"
        yield from textwrap.wrap(change, _WIDTH, initial_indent="  ", subsequent_indent="          ")


def _cell(cell: Cell) -> str:
    match cell:
        case None:
            return NONE
        case bool():
            return "yes" if cell else "no"
        case int():
            return f"{cell:,}"
        case float():
            return number(cell)
        case _:
            return cell


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent="    ")
