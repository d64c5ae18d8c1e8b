"""`chairlift study NAME TARGET`: a question about a target, answered by runs, tables, sentences and verdicts."""

from __future__ import annotations

import argparse
import difflib
from typing import TYPE_CHECKING

from chairlift.cli.parser import Parser
from chairlift.cli.study_runs import add_study_flags, run_study
from chairlift.cli.target_flags import add_target_flags
from chairlift.core.errors import ConfigError

if TYPE_CHECKING:
    from chairlift.lab.studies.study import Study


def configure(parser: Parser) -> None:
    """Which study, of what, how large; and the settings of servers, models and simulations."""
    parser.add_argument(
        "name", metavar="NAME", help="baseline, uniform, mixed, burst, myths, sweep, parameters, ladder"
    )
    parser.add_argument("target", metavar="TARGET", help="http://HOST:PORT of a server, a model, or sim:DEVICE/MODEL")
    add_study_flags(parser)
    add_target_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run it. 1 where a verdict asks for a change.

    Raises:
        ConfigError: there is no such study, or the target cannot be used for it.
    """
    from chairlift.lab.studies.catalogue import CATALOGUE
    from chairlift.lab.studies.text import study_lines

    name: str = arguments.name
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name, CATALOGUE, n=1)
        meant = f"did you mean {near[0]}?" if near else "there are:"
        known = "\n".join(f"  {key:<12}{entry.question}" for key, entry in CATALOGUE.items())
        raise ConfigError(f"there is no study {name!r}; {meant}\n{known}")

    async def work(study: Study) -> list[str]:
        await CATALOGUE[name].run(study)
        return list(study_lines(study.record))

    return run_study(arguments, name, work)
