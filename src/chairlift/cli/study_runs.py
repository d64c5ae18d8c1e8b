"""What `compare` and `study` share: a study in a folder of its own, run to its end or to Ctrl-C, and told."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from chairlift.cli.flags import add_flag
from chairlift.cli.json_file import check_json_target, write_json
from chairlift.cli.parser import Parser
from chairlift.cli.target_flags import TargetFlags
from chairlift.cli.units import PATH

if TYPE_CHECKING:
    from chairlift.lab.studies.study import Study
    from chairlift.lab.subjects import Subject

Work = Callable[["Study"], Awaitable[list[str]]]
"""Does the study; its lines are printed at the end."""


def add_study_flags(parser: Parser) -> None:
    """How much is run, and where it goes."""
    kept = parser.add_argument_group("study")
    kept.add_argument("--quick", action="store_true", help="a smaller size, for a first look")
    kept.add_argument("--json", default=None, metavar="FILE", help="write the study there, too (- for standard output)")
    add_flag(kept, "out", PATH, "The study's folder. Default: a new one in runs/, named by time and study.")


def run_study(arguments: argparse.Namespace, name: str, work: Work) -> int:
    """Run a study under an event loop of its own. The exit code: 1 where a verdict asks for a change or a
    request was not answered.

    Raises:
        ChairliftError: target, settings or folder will not do.
    """
    import uvloop

    return uvloop.run(_run(arguments, name, work))


async def _run(arguments: argparse.Namespace, name: str, work: Work) -> int:
    from chairlift.cli.main import FOUND, INTERRUPTED, OK
    from chairlift.lab.client.options import Stop
    from chairlift.lab.client.recording import interrupt_stops
    from chairlift.lab.runs.store import RunStore
    from chairlift.lab.studies.study import Interrupted, Study

    quiet = arguments.json == "-"
    check_json_target(arguments.json)
    subject: Subject = TargetFlags.of(arguments).subject()
    stop = Stop()
    folder: Path = getattr(arguments, "out", None) or RunStore().new(name)
    try:
        with interrupt_stops(stop):
            study = Study(name, subject, folder, quick=arguments.quick, stop=stop, say=_progress)
            try:
                lines = await work(study)
            except Interrupted:
                study.close(complete=False)
                print(f"stopped early; what there is lies in {folder}", file=sys.stderr)
                return INTERRUPTED
            except BaseException:
                study.close(complete=False)
                raise
            study.close()
    finally:
        subject.close()
    if not quiet:
        print(*lines, "", f"kept in {folder}", sep="\n")
    if arguments.json:
        write_json(study.record.to_json(), arguments.json)
    return FOUND if study.failures or any(verdict.setting for verdict in study.record.verdicts) else OK


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
