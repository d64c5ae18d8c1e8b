"""`chairlift diff A B`: two runs side by side, their loads first."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from chairlift.cli.flags import add_flag
from chairlift.cli.main import FOUND, OK
from chairlift.cli.parser import Parser
from chairlift.cli.units import PATH


def configure(parser: Parser) -> None:
    """The two runs."""
    doc = "a run's folder, its name, the beginning of it, or `last`"
    parser.add_argument("before", metavar="A", help=doc)
    parser.add_argument("after", metavar="B", help=doc)
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument("--definitions", action="store_true", help="print what each figure means")
    add_flag(parser, "runs", PATH, "The folder that keeps runs.", Path("runs"))


def run(arguments: argparse.Namespace) -> int:
    """Show what differs. 1 when they cannot be compared: other loads, or a run that did not come to its end.

    Raises:
        RecordError: one of them is not there, is damaged, or has no load.
    """
    from chairlift.cli.figures import definition_lines, diff_lines
    from chairlift.lab.runs.compare import compare
    from chairlift.lab.runs.store import RunStore
    from chairlift.records.client_summary import definitions

    store = RunStore(getattr(arguments, "runs", Path("runs")))
    found = compare(store.find(arguments.before), store.find(arguments.after))
    if arguments.definitions and not arguments.json:
        print(*definition_lines(definitions()), "", sep="\n")
    if arguments.json:
        told = found.to_json() | ({"definitions": definitions()} if arguments.definitions else {})
        print(json.dumps(told, indent=2))
    else:
        print(*diff_lines(found), sep="\n")
    return OK if found.comparable else FOUND
