"""A comparison as tables in its study, and as lines for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from chairlift.lab.compare.comparison import Comparison
from chairlift.lab.compare.conclusions import differences, statements, suits
from chairlift.lab.compare.recoverable import RECOVERABLE
from chairlift.lab.compare.rows import HEADINGS, Row, rows
from chairlift.lab.statistics import METHOD, Ratio
from chairlift.lab.studies.folder import Column
from chairlift.lab.studies.study import Study
from chairlift.lab.studies.words import spread

_WIDTH: Final = 110


def write(study: Study, comparison: Comparison) -> None:
    """Put tables and sentences into the study."""
    policies = [one.policy for one in comparison.contenders]
    what = suits(comparison)
    study.table(
        "comparison",
        "The three policies on this load: mean, and smallest to largest of the rounds.",
        (Column("group"), Column("figure"), Column("unit"), *(Column(policy) for policy in policies)),
        [
            ("setting", "as it ran", "", *(_heading(comparison, policy) for policy in policies)),
            *((row.group, row.title, row.unit, *row.cells) for row in rows(comparison)),
            ("suits", "by these figures", "", *(what[policy] for policy in policies)),
        ],
    )
    study.table(
        "rounds",
        "Output of each policy in each round: mean of its rounds beside it.",
        (Column("policy"), Column("round"), Column("rate", "tokens/s", "output"), Column("spread", "tokens/s")),
        [
            (policy, number, rate, spread(comparison.rates(policy)))
            for policy in policies
            for number, rate in enumerate(comparison.rates(policy), start=1)
        ],
        x="policy",
        y="rate",
    )
    study.table(
        "differences",
        METHOD,
        (
            Column("figure"),
            Column("above", label="of"),
            Column("below", label="to"),
            Column("ratio"),
            Column("low", label="lower end"),
            Column("high", label="upper end"),
            Column("finding"),
        ),
        [
            (
                one.figure,
                one.above,
                one.below,
                *((None, None, None, "cannot be compared") if one.ratio is None else _cells(one.ratio)),
            )
            for one in differences(comparison)
        ],
        y="ratio",
        low="low",
        high="high",
    )
    study.record.definitions["recoverable"] = RECOVERABLE
    for text in statements(comparison):
        study.sentence(text)
    for text in comparison.unfair:
        study.note(text)
    if comparison.offline:
        study.note(
            "everything is there at once, so static got its requests sorted by max_tokens, then by prompt: whoever "
            "sends a file may sort it. Where max_tokens is not known so well, static loses more to stragglers."
        )


def comparison_lines(study: Study, comparison: Comparison) -> Iterator[str]:
    """For the terminal."""
    described = comparison.described
    name = comparison.load.name or "the load"
    yield f"{name}, {_rounds(comparison)} of each policy, each round on a draw of its own like this one:"
    yield described.table()
    yield ""
    policies = [one.policy for one in comparison.contenders]
    lines = [("", "", *policies), ("as it ran", "", *(_heading(comparison, policy) for policy in policies))]
    made = rows(comparison)
    yield from _table(lines, made)
    yield ""
    for policy, text in suits(comparison).items():
        yield from _paragraph(f"{policy} {text}.")
    yield ""
    for text in statements(comparison):
        yield from _paragraph(text)
    yield from _paragraph(METHOD)
    if study.record.notes:
        yield ""
        for note in study.record.notes:
            yield from _paragraph(f"Note: {note}")


def _table(head: Sequence[Sequence[str]], made: Sequence[Row]) -> Iterator[str]:
    grid = [*head, *(("  " + row.title, row.unit, *row.cells) for row in made)]
    widths = [max(len(line[place]) for line in grid) for place in range(len(grid[0]))]
    for line in head:
        yield _line(line, widths)
    group = ""
    for row, line in zip(made, grid[len(head) :], strict=True):
        if row.group != group:
            group = row.group
            yield group
        yield _line(line, widths)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    left = f"{cells[0]:<{widths[0]}}  {cells[1]:<{widths[1]}}"
    return (left + "".join(f"  {cell:>{width}}" for cell, width in zip(cells[2:], widths[2:], strict=True))).rstrip()


def _rounds(comparison: Comparison) -> str:
    count = len(next(iter(comparison.runs.values())))
    return f"{count} round{'s' if count > 1 else ''}"


def _heading(comparison: Comparison, policy: str) -> str:
    one = next(contender for contender in comparison.contenders if contender.policy == policy)
    return HEADINGS[one.policy].format(size=one.size).split(",", maxsplit=1)[0]


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent="    ")


def _cells(ratio: Ratio) -> tuple[float | str | None, ...]:
    return (ratio.middle, ratio.low, ratio.high, ratio.finding)
