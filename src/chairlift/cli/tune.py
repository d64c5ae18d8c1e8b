"""`chairlift tune --device DEVICE ...`: the best settings of a policy for a load under limits, and what binds each."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chairlift.cli.advice_flags import Asked, Progress, add_advice_flags, framework_lines, read_question
from chairlift.cli.flags import add_flag
from chairlift.cli.main import FOUND, OK
from chairlift.cli.parser import Parser
from chairlift.cli.units import PATH, TEXT, WHOLE, choice
from chairlift.core.config import POLICIES
from chairlift.core.errors import ConfigError

if TYPE_CHECKING:
    from chairlift.advisor.tune.advice import Tuned
    from chairlift.advisor.tune.order import Walk
    from chairlift.advisor.tune.verify import Verified

_MARGIN: Final = 0.1
"""Settings that use up a limit in the simulator break it on a device that is a little slower."""


def configure(parser: Parser) -> None:
    """Policy, load, device, limits, how long to search, whether to walk and to verify."""
    from chairlift.advisor.evaluate.targets import CAPACITY, OBJECTIVES

    add_flag(parser, "policy", choice(POLICIES), "The policy whose settings are sought.", "continuous")
    search = parser.add_argument_group("search")
    add_flag(search, "trials", WHOLE, "Simulations of the search.", 60)
    add_flag(search, "seed", WHOLE, "Of the search and of the order in which it is verified.", 0)
    add_flag(search, "storage", PATH, "Keep trials in this file; a second search goes on where the first ended.")
    parser.add_argument("--explain", action="store_true", help="walk through the order in which to tune by hand, too")
    check = parser.add_argument_group("verification")
    add_flag(check, "verify", TEXT, "Run the best three and the defaults on this: a model, or sim:DEVICE/MODEL.")
    add_flag(check, "repeats", WHOLE, "Runs of each on it.", 3)
    add_flag(check, "keep", PATH, "The folder that keeps those runs.", Path("runs"))
    add_advice_flags(parser, (*OBJECTIVES, CAPACITY), _MARGIN)


def run(arguments: argparse.Namespace) -> int:
    """Search, explain, verify. 1 when nothing runs, no settings keep the limits, or verified ones are worse.

    Raises:
        ChairliftError: load, device, settings or target cannot be used.
    """
    if find_spec("optuna") is None:
        raise ConfigError("tune searches with Optuna, which is not installed: pip install 'chairlift[advisor]'.")

    from chairlift.advisor.evaluate.pool import Pool
    from chairlift.advisor.tune.advice import tune
    from chairlift.advisor.tune.order import walk
    from chairlift.advisor.tune.report import tuned_lines, verified_lines, walk_lines
    from chairlift.advisor.tune.searching import Budget
    from chairlift.lab.targets.named import is_url
    from chairlift.lab.targets.simulated import trust

    given = vars(arguments)
    if is_url(given.get("verify", "")):
        raise ConfigError(
            f"--verify {arguments.verify} is a server with settings of its own: name a model, which is started with "
            "each of the settings in turn; or start the server with the flags that `tune --for` prints and `chairlift "
            "bench` it."
        )
    policy = given.get("policy", "continuous")
    budget = Budget(**{name: given[name] for name in ("trials", "seed", "storage") if name in given})
    asked = read_question(arguments, _MARGIN, capacity="verify" not in given)
    progress = Progress()
    walked: Walk | None = None
    try:
        with Pool(given.get("workers"), progress) as pool:
            if arguments.explain:
                start = {"policy": policy}
                walked = walk(pool, asked.problem, asked.load.first, asked.targets, policy, start)
            tuned = tune(pool, asked.problem, asked.load, asked.targets, policy, budget)
    finally:
        progress.end()
    if not arguments.json:
        print(*(f"assumed: {one}" for one in asked.assumed), trust(asked.problem.device), "", sep="\n")
        if walked is not None:
            print(*walk_lines(walked), "", sep="\n")
        print(*tuned_lines(tuned), sep="\n")
        print(*framework_lines(arguments, asked.problem, tuned.winner.settings), sep="\n")
    verified = _verify(arguments, tuned) if "verify" in given and tuned.winner.runs else None
    if arguments.json:
        print(json.dumps(_plain(asked, tuned, walked, verified), indent=2, default=str))
    elif verified is not None:
        print("", *verified_lines(verified, asked.targets), sep="\n")
    worse = verified is not None and verified.winner is verified.candidates[-1]
    return OK if tuned.limits_met and not worse else FOUND


def _verify(arguments: argparse.Namespace, tuned: Tuned) -> Verified:
    import uvloop

    from chairlift.advisor.tune.verify import verify
    from chairlift.lab.client.options import Stop
    from chairlift.lab.client.recording import interrupt_stops
    from chairlift.lab.runs.store import RunStore
    from chairlift.lab.subjects import ModelSubject, SimulatedSubject, Subject
    from chairlift.lab.targets.named import is_simulated

    name: str = arguments.verify
    subject: Subject = SimulatedSubject(name) if is_simulated(name) else ModelSubject(name)
    folder = RunStore(getattr(arguments, "keep", Path("runs"))).new("tune")
    folder.mkdir(parents=True, exist_ok=True)

    async def go() -> Verified:
        stop = Stop()
        with interrupt_stops(stop):
            return await verify(
                subject,
                tuned,
                folder,
                repeats=getattr(arguments, "repeats", 3),
                seed=getattr(arguments, "seed", 0),
                stop=stop,
                told=_tell,
            )

    try:
        return uvloop.run(go())
    finally:
        subject.close()


def _tell(line: str) -> None:
    if sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)


def _plain(asked: Asked, tuned: Tuned, walked: Walk | None, verified: Verified | None) -> dict[str, Any]:
    return tuned.to_json() | {
        "assumed": list(asked.assumed),
        "order": None if walked is None else asdict(walked),
        "verified": None if verified is None else asdict(verified) | {"better": verified.better(asked.targets)},
    }
