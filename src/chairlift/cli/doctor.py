"""`chairlift doctor RUN|URL|FILE`: what is wrong with a run or a server, why, and what to change."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from chairlift.cli.flags import add_flag
from chairlift.cli.main import FOUND, OK
from chairlift.cli.parser import Parser
from chairlift.cli.units import DURATION, PATH, TEXT

if TYPE_CHECKING:
    from chairlift.advisor.doctor.diagnose import Diagnosis

_WINDOW = 30 * 10**9


def configure(parser: Parser) -> None:
    """What to look at, for how long, and the device to try changes on."""
    parser.add_argument(
        "what",
        metavar="RUN|URL|FILE",
        nargs="+",
        help="a run's folder, its name or `last`; a server's URL; or metrics pages saved from one, the older first",
    )
    add_flag(parser, "runs", PATH, "The folder that keeps runs.", Path("runs"))
    add_flag(
        parser, "device", TEXT, "A device model to try changes on. Default: the one that a simulated run was made on."
    )
    live = parser.add_argument_group("server")
    add_flag(live, "window", DURATION, "How long a server is watched.", _WINDOW)
    add_flag(live, "kind", TEXT, "Which server it is, where it cannot be told: vllm, sglang, tgi, llama.cpp, ...")
    add_flag(live, "metrics_url", TEXT, "Where its metrics are. Default: /metrics.")
    add_flag(live, "api_key", TEXT, "Sent as a bearer token.")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Diagnose. 1 when something is wrong, so that it can gate a deployment.

    Raises:
        ChairliftError: there is no such run or server, or its records are damaged.
    """
    from chairlift.advisor.doctor.report import diagnosis_lines

    diagnosis = _diagnose(arguments)
    if arguments.json:
        print(json.dumps(diagnosis.to_json(), indent=2))
    else:
        print(*diagnosis_lines(diagnosis), sep="\n")
    return FOUND if diagnosis.sick else OK


def _diagnose(arguments: argparse.Namespace) -> Diagnosis:
    from chairlift.advisor.doctor.case import Case
    from chairlift.advisor.doctor.diagnose import diagnose
    from chairlift.advisor.doctor.effect import with_effects
    from chairlift.core.errors import DeviceModelError
    from chairlift.lab.runs.store import RunStore
    from chairlift.lab.targets.named import is_url

    first = arguments.what[0]
    if is_url(first):
        return _watched(arguments)
    if Path(first).is_file():
        return _pasted(arguments)
    folder = (
        Path(first) if Path(first).is_dir() else RunStore(getattr(arguments, "runs", Path("runs"))).find(first).folder
    )
    case = Case.read(folder)
    diagnosis = diagnose(case)
    if (device := getattr(arguments, "device", None)) is not None:
        return with_effects(diagnosis, device)
    if case.device:
        with contextlib.suppress(DeviceModelError):  # a file that has moved since: nothing is tried, then
            return with_effects(diagnosis, case.device)
    return diagnosis


def _watched(arguments: argparse.Namespace) -> Diagnosis:
    import asyncio

    from chairlift.advisor.doctor.diagnose import diagnose
    from chairlift.advisor.doctor.watch import watch

    given = {name: getattr(arguments, name, None) for name in ("kind", "metrics_url", "api_key")}
    window = getattr(arguments, "window", _WINDOW) / 1e9
    case, facts = asyncio.run(watch(arguments.what[0], window, **given))
    return diagnose(case, facts)


def _pasted(arguments: argparse.Namespace) -> Diagnosis:
    from chairlift.advisor.doctor.diagnose import diagnose
    from chairlift.advisor.doctor.server import case_of_pages

    pages = [Path(name).read_text("utf-8") for name in arguments.what]
    window = getattr(arguments, "window", _WINDOW) / 1e9
    case, facts = case_of_pages(pages, name=arguments.what[-1], seconds=window, kind=getattr(arguments, "kind", ""))
    return diagnose(case, facts)
