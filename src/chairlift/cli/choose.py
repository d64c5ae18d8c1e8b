"""`chairlift choose --device DEVICE ...`: which batching policy a load needs, with which settings, and why."""

from __future__ import annotations

import argparse
import json
from typing import Final

from chairlift.cli.advice_flags import Progress, add_advice_flags, framework_lines, read_question
from chairlift.cli.flags import add_flag
from chairlift.cli.main import FOUND, OK
from chairlift.cli.parser import Parser
from chairlift.cli.units import NUMBER

_MARGIN: Final = 0.0
"""Policies are compared as they are."""


def configure(parser: Parser) -> None:
    """Load, device, targets, and how far a simpler policy may be from continuous."""
    from chairlift.advisor.evaluate.targets import OBJECTIVES

    add_flag(parser, "within", NUMBER, "A simpler policy may be worse than continuous by this share.", 0.05)
    add_advice_flags(parser, OBJECTIVES, _MARGIN)


def run(arguments: argparse.Namespace) -> int:
    """Simulate, decide, explain. 1 when nothing runs or no policy keeps the limits.

    Raises:
        ChairliftError: load, device or settings cannot be used.
    """
    from chairlift.advisor.choose.advice import choose
    from chairlift.advisor.choose.decision import WITHIN
    from chairlift.advisor.choose.report import choice_lines
    from chairlift.advisor.evaluate.pool import Pool
    from chairlift.lab.targets.simulated import trust

    asked = read_question(arguments, _MARGIN)
    progress = Progress()
    try:
        with Pool(getattr(arguments, "workers", None), progress) as pool:
            found = choose(pool, asked.problem, asked.load, asked.targets, within=getattr(arguments, "within", WITHIN))
    finally:
        progress.end()
    if arguments.json:
        print(json.dumps(found.to_json() | {"assumed": list(asked.assumed)}, indent=2))
    else:
        print(*(f"assumed: {one}" for one in asked.assumed), trust(asked.problem.device), "", sep="\n")
        print(*choice_lines(found), sep="\n")
        if found.recommended is not None:
            print(*framework_lines(arguments, asked.problem, found.recommended.settings), sep="\n")
    return OK if found.decision.limits_met else FOUND
