"""`chairlift compare TARGET`: one load under the three policies, taking turns, as one table of measured figures."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from chairlift.cli.flags import add_flag
from chairlift.cli.parser import Parser
from chairlift.cli.study_runs import add_study_flags, run_study
from chairlift.cli.target_flags import TargetFlags, add_load_flags, add_target_flags, load_of
from chairlift.cli.units import WHOLE, WHOLE_LIST
from chairlift.core.errors import ConfigError

if TYPE_CHECKING:
    from chairlift.lab.compare.comparison import CompareOptions
    from chairlift.lab.studies.study import Study


def configure(parser: Parser) -> None:
    """Target, load, how often, which batch sizes; and the settings that all policies share."""
    parser.add_argument("target", metavar="TARGET", help="a model, or sim:DEVICE/MODEL")
    add_load_flags(parser)
    add_study_flags(parser)
    turns = parser.add_argument_group("comparison")
    add_flag(turns, "repeats", WHOLE, "Rounds: runs of each policy. Default: 3, with --quick 2.")
    add_flag(
        turns,
        "sizes",
        WHOLE_LIST,
        "Batch sizes that are tried for static and dynamic; a single one is taken. Default: 4,8,16,32, with --quick "
        "4,16.",
    )
    add_flag(turns, "order_seed", WHOLE, "Of the order in which the policies take turns.", 0)
    add_target_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare.

    Raises:
        ConfigError: a policy was asked for, the target is a server, or the load cannot be run.
    """
    from chairlift.lab.compare.comparison import run_comparison
    from chairlift.lab.compare.lines import comparison_lines, write
    from chairlift.lab.subjects import ModelSubject
    from chairlift.lab.targets.named import is_url

    if is_url(arguments.target):
        raise ConfigError(
            f"{arguments.target} is a server: its policy is its own, so nothing can be compared there. Start it with "
            "each --policy in turn, `chairlift bench` it, and use `chairlift diff`; or give the model itself as TARGET."
        )
    if hasattr(arguments, "policy"):
        raise ConfigError(
            f"--policy {arguments.policy} makes no sense here: all three are compared. `chairlift bench` runs one."
        )
    load, options = load_of(arguments), _options(arguments)
    named = TargetFlags.of(arguments).read_tokenizer()

    async def work(study: Study) -> list[str]:
        tokenizer = study.subject.loaded.tokenizer if isinstance(study.subject, ModelSubject) else named
        count_tokens = None if tokenizer is None else lambda text: len(tokenizer.encode(text))
        comparison = await run_comparison(study, load, options, count_tokens)
        write(study, comparison)
        return list(comparison_lines(study, comparison))

    return run_study(arguments, f"compare {load.name}".strip(), work)


def _options(arguments: argparse.Namespace) -> CompareOptions:
    from chairlift.lab.compare.comparison import QUICK_SIZES, CompareOptions

    given: dict[str, Any] = {"repeats": 2, "sizes": QUICK_SIZES, "widen": False} if arguments.quick else {}
    given |= {name: getattr(arguments, name) for name in ("repeats", "sizes") if hasattr(arguments, name)}
    if hasattr(arguments, "order_seed"):
        given["seed"] = arguments.order_seed
    return CompareOptions(**given)
