"""`chairlift generate MODEL IN OUT`: answers a file of requests offline."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from chairlift.cli.engine_flags import add_engine_flags, engine_config
from chairlift.cli.flags import add_flag
from chairlift.cli.parser import Parser
from chairlift.cli.units import TEXT_LIST

if TYPE_CHECKING:
    from chairlift.engine.offline import Progress

_MOST_CHOICES = 128
_SHOW_EVERY = 10.0
"""Seconds between lines of progress where there is no terminal to draw on."""


def configure(parser: Parser) -> None:
    """The model, the two files, and a flag for every setting of device and scheduler."""
    add_engine_flags(parser)
    parser.add_argument(
        "source",
        metavar="IN",
        type=Path,
        help="requests, one a line, in OpenAI's batch format: custom_id, url (/v1/completions or "
        "/v1/chat/completions), body",
    )
    parser.add_argument(
        "target",
        metavar="OUT",
        type=Path,
        help="answers, one a line, in the order in which they end; if it is there, only what it lacks is answered",
    )
    doc = "Names under which requests may ask for the model. Default: the model's file or folder name."
    add_flag(parser, "served_model_name", TEXT_LIST, doc)


def run(arguments: argparse.Namespace) -> int:
    """Answer every line. 1 when some failed, as their lines in OUT say.

    Raises:
        ChairliftError: settings, model or files will not do.
    """
    from chairlift.engine.offline import check_input

    check_input(arguments.source)  # before a model is loaded for it
    config = engine_config(arguments)

    from chairlift.engine.core import EngineCore
    from chairlift.engine.loader import load_model
    from chairlift.engine.offline import run_batch
    from chairlift.engine.recording import recorded
    from chairlift.server.batch import OpenAIBatch
    from chairlift.server.prompts import PromptReader

    loaded = load_model(config)
    print(loaded.memory, file=sys.stderr)
    core = EngineCore(loaded.scheduler, loaded.runner, loaded.tokenizer, loaded.sampler)
    names = getattr(arguments, "served_model_name", ()) or (loaded.name,)
    form = OpenAIBatch(PromptReader(loaded.tokenizer, loaded.chat_template, names, _MOST_CHOICES))
    show = Display()
    try:
        with recorded(core, loaded, loaded.record):
            progress = run_batch(core, form, arguments.source, arguments.target, show)
    except KeyboardInterrupt:
        show.end()
        print("interrupted: the same command again goes on from here.", file=sys.stderr)
        raise
    finally:
        core.close()
    show.end()
    print(show.summary(progress), file=sys.stderr)
    return 1 if progress.failed else 0


class Display:
    """Progress on standard error: a line that is redrawn on a terminal, one now and then elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._begun = time.monotonic()
        self._next = self._begun + (0 if self._terminal else _SHOW_EVERY)
        self._drawn = False

    def __call__(self, progress: Progress) -> None:
        """Called after every step."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (0.2 if self._terminal else _SHOW_EVERY)
        line = self.summary(progress)
        if self._terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
            self._drawn = True
        else:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the redrawn line."""
        if self._drawn:
            print(file=sys.stderr)
            self._drawn = False

    def summary(self, progress: Progress) -> str:
        """How far, how many failed, how fast."""
        seconds = max(time.monotonic() - self._begun, 1e-9)
        return (
            f"{progress.skipped + progress.done:,} of {progress.total:,} answered"
            f" ({progress.skipped:,} by an earlier run, {progress.failed:,} failed); "
            f"{progress.prompt_tokens:,} prompt and {progress.output_tokens:,} output tokens in {seconds:.1f} s, "
            f"{progress.output_tokens / seconds:,.1f} output tokens/s"
        )
