"""`chairlift report RUN...`: one page with pictures of runs, or of a study, that needs no network."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chairlift.cli.flags import add_flag
from chairlift.cli.main import FOUND, OK
from chairlift.cli.parser import Parser
from chairlift.cli.units import DURATION, PATH

if TYPE_CHECKING:
    from chairlift.lab.report.report import Report
    from chairlift.lab.report.sources import Source


def configure(parser: Parser) -> None:
    """Runs, which part of them, and where the report goes."""
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="+",
        help="a run's folder, its name, the beginning of it, or `last`; several of one load are shown side by side; "
        "or one study's folder",
    )
    add_flag(parser, "out", PATH, "Folder of the page and its pictures. Default: `report` in the run's or study's own "
             "folder, or here for several runs.")  # fmt: skip
    add_flag(parser, "from", DURATION, "Slot picture: from so long after the first request was due.")
    add_flag(parser, "to", DURATION, "Slot picture: up to so long after the first request was due.")
    parser.add_argument(
        "--dark", action="store_true", help="PNGs on a dark ground; the page does as its reader's system"
    )
    parser.add_argument("--json", action="store_true", help="print what was written and found as JSON")
    add_flag(parser, "runs", PATH, "The folder that keeps runs.", Path("runs"))


def run(arguments: argparse.Namespace) -> int:
    """Write it. 1 when something is wrong with the runs: one did not come to its end, requests failed, the client was
    the bottleneck, or the loads differ.

    Raises:
        RecordError: a run is not there or is damaged, or the report cannot be written.
        ConfigError: there is nothing between --from and --to, or vl-convert is not installed.
    """
    from chairlift.lab.report.report import Options, write_report
    from chairlift.lab.report.sources import open_source
    from chairlift.lab.runs.store import RunStore

    given = vars(arguments)
    source = open_source(arguments.run, RunStore(given.get("runs", Path("runs"))))
    options = Options(given.get("from"), given.get("to"), "dark" if arguments.dark else "light")
    report = write_report(source, given.get("out") or _beside(source), options)
    if arguments.json:
        print(json.dumps(_plain(report), indent=2))
    else:
        print(*report.lead, *(f"! {one}" for one in report.cautions), "", sep="\n")
        print(f"{report.page}, and {len(report.pictures)} pictures beside it")
    return FOUND if report.wrong else OK


def _beside(source: Source) -> Path:
    if source.study is not None:
        return source.folder / "report"
    return source.runs[0].folder / "report" if len(source.runs) == 1 else Path("report")


def _plain(report: Report) -> dict[str, Any]:
    return {
        "page": str(report.page),
        "pictures": [str(path) for path in report.pictures],
        "lead": report.lead,
        "cautions": report.cautions,
        "wrong": report.wrong,
        "slots": [
            {"from_s": one.start / 1e9, "to_s": one.stop / 1e9, "steps": one.steps, "tokens": one.tokens}
            for one in report.slots
        ],
    }
