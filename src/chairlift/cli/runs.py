"""`chairlift runs`: lists the runs that were kept."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from chairlift.cli.flags import add_flag
from chairlift.cli.main import FOUND, OK
from chairlift.cli.parser import Parser
from chairlift.cli.units import PATH


def configure(parser: Parser) -> None:
    """Filters, and how to show them."""
    parser.add_argument(
        "--filter",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="runs with such a fact; != ~ (contains) < > <= >= do, too. load, target, kind, model, policy, status, or "
        "any key of the manifest, such as ttft_from_schedule.p99<0.5",
    )
    parser.add_argument("--json", action="store_true", help="print all facts of each run")
    parser.add_argument("--definitions", action="store_true", help="print what each figure means")
    add_flag(parser, "runs", PATH, "The folder that keeps runs.", Path("runs"))


def run(arguments: argparse.Namespace) -> int:
    """List them, the oldest first. 1 when a run cannot be read; the others are listed all the same.

    Raises:
        ConfigError: a filter is none.
        RecordError: what should be the folder of runs is none.
    """
    from chairlift.cli.figures import definition_lines
    from chairlift.lab.runs.store import Filter, RunStore
    from chairlift.records.client_summary import definitions

    if arguments.definitions and not arguments.json:
        print(*definition_lines(definitions()), "", sep="\n")
    store = RunStore(getattr(arguments, "runs", Path("runs")))
    entries = store.matching([Filter.parse(text) for text in arguments.filter])
    unreadable = store.unreadable()
    for why in unreadable:
        print(f"chairlift: {why}", file=sys.stderr)
    code = FOUND if unreadable else OK
    facts = [entry.facts() for entry in entries]
    if arguments.json:
        told = {"runs": facts, "unreadable": unreadable} | (
            {"definitions": definitions()} if arguments.definitions else {}
        )
        print(json.dumps(told, indent=2))
    elif entries:
        print(*_table(facts), sep="\n")
    elif not store.folder.exists():
        print(f"no runs: there is no folder {store.folder}; --runs names another")
    else:
        print(f"no such runs in {store.folder}" if arguments.filter else f"no runs in {store.folder}")
    return code


def _too_few(facts: Mapping[str, object], key: str) -> bool:
    """Whether it is a p99 of so few values that it would be the maximum in other words."""
    from chairlift.records.metrics import ENOUGH

    metric, _, figure = key.rpartition(".")
    count = facts.get(f"{metric}.count")
    return figure == "p99" and isinstance(count, int) and count < ENOUGH[99]


def _table(facts: list[dict[str, object]]) -> list[str]:
    from chairlift.cli.figures import number

    summary = "results.summary"
    columns = {
        "run": [str(one["name"]) for one in facts],
        "target": [f"{one['kind']} {one['model']}" for one in facts],
        "status": ["stopped" if one.get("results.stopped") else str(one["status"]) for one in facts],
        "answered": [
            f"{one.get(f'{summary}.requests.answered', '-')}/{one.get(f'{summary}.requests.scheduled', '-')}"
            for one in facts
        ],
    }
    for title, key in (
        ("tokens/s", "rates.output_tokens_per_second.value"),
        ("TTFT p50 s", "metrics.ttft_from_schedule.p50"),
        ("TTFT p99 s", "metrics.ttft_from_schedule.p99"),
        ("TBT p99 s", "metrics.time_between_tokens.p99"),
    ):
        values = [None if _too_few(one, f"{summary}.{key}") else one.get(f"{summary}.{key}") for one in facts]
        columns[title] = [number(value) if isinstance(value, int | float) else "-" for value in values]
    widths = {title: max(len(title), *map(len, cells)) for title, cells in columns.items()}
    rows = [list(columns), *map(list, zip(*columns.values(), strict=True))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths.values(), strict=True)).rstrip() for row in rows
    ]
