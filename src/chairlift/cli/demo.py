"""`chairlift demo`: the main job. Two loads under the three policies on a real model, as one table."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from chairlift.cli.json_file import check_json_target, write_json
from chairlift.cli.parser import Parser
from chairlift.core.config import POLICIES
from chairlift.core.errors import ModelError


def configure(parser: Parser) -> None:
    """The model, the sizes of the loads, and where the figures go."""
    for name, default, text in (
        ("threads", 0, "threads that compute; 0: all this process may use"),
        ("slots", 8, "sequences that run at once under each policy (default 8)"),
        ("long", 160, "tokens of the long answers (default 160)"),
        ("straggler", 200, "tokens of the straggler's answer (default 200; the classic example has 600)"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=text)
    parser.add_argument("--model", default=None, help="GGUF file or Hugging Face directory (default: the demo model)")
    parser.add_argument("--record", type=Path, default=None, metavar="FOLDER", help="keep each run's records there")
    parser.add_argument(
        "--json", default=None, metavar="FILE", help="write the figures there too (- for standard output)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the loads under each policy and print the table.

    Raises:
        ModelError: there is no model, or it cannot be loaded.
        ConfigError: sizes that cannot be.
    """
    from chairlift.cli.demo_runs import DemoSizes, as_json, run_demo
    from chairlift.cli.demo_table import print_demo
    from chairlift.demo_model import locate
    from chairlift.engine.config import EngineConfig
    from chairlift.engine.loader import load_model

    sizes = DemoSizes(slots=arguments.slots, long_answer=arguments.long, straggler=arguments.straggler)
    quiet = arguments.json == "-"
    check_json_target(arguments.json)
    try:
        model = arguments.model or str(locate())
    except FileNotFoundError as error:
        raise ModelError(str(error)) from error
    begun = time.monotonic()
    loaded = load_model(EngineConfig.of(model, {**sizes.settings(), "threads": arguments.threads}))
    if not quiet:
        print(f"{loaded.name}, loaded in {time.monotonic() - begun:.1f} s\n{loaded.memory}\n", flush=True)
    runs = []
    try:
        for result in run_demo(loaded, sizes, POLICIES, folder=arguments.record):
            runs.append(result)
            if not quiet:
                print(f"{result.load}, {result.policy}: {result.drive.wall / 1e9:.1f} s", flush=True)
    finally:
        loaded.runner.close()
    if not quiet:
        print()
        print_demo(runs, sizes)
    if arguments.json:
        write_json(as_json(runs, sizes), arguments.json)
    return 0
