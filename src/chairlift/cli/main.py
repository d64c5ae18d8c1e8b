"""`chairlift COMMAND ...`: finds the command and turns its end into an exit code.

0: done. 1: done, and something is wrong with what was looked at. 2: could not run; the reason is on standard error.
Nothing but the standard library is imported before a command is known, so that --help answers at once.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from chairlift import __version__
from chairlift.core.errors import ChairliftError, ConfigError

COMMANDS = {
    "demo": "one load under static, dynamic and continuous batching on a real model, as one table",
    "serve": "serve a model over HTTP as OpenAI's API does",
    "generate": "answer a file of requests offline, with progress; a second run resumes",
    "bench": "put a load to a server or a model, measure it, keep the run",
    "memory": "where a device's memory goes for a model, how many sequences fit, how many of them pay",
    "simulate": "a load on a simulated device under each policy, or over any setting, in seconds",
    "calibrate": "measure this machine, or fit a measured table, for the simulator",
    "choose": "which batching policy a load needs on a device, with which settings, and why",
    "doctor": "what is wrong with a run or a live server, why, and what to change",
    "tune": "the best settings of a policy for a load under limits, and what binds each of them",
    "flags": "settings in the words of vLLM, SGLang, TGI, TensorRT-LLM, Triton, TF Serving or llama.cpp",
    "runs": "list the runs that were kept",
    "diff": "two runs side by side: loads, parameters, results",
    "report": "pictures of runs or of a study, and one page around them",
    "compare": "your load under static, dynamic and continuous batching: one table of measured figures",
    "study": "a question answered by measuring: baseline, uniform, mixed, burst, myths, sweep, parameters, ladder",
}
"""What each command does. Its module, chairlift.cli.NAME or as _MODULES says, has configure(parser) and run(arguments)
-> exit code."""

_MODULES = {"flags": "flags_command"}
"""Commands whose name is another module's."""

OK, FOUND, FAILED, INTERRUPTED = 0, 1, 2, 130

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What keeps an output, or a run's folder, from growing."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the value is the process's exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # closed by whoever started it; what is printed goes nowhere
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
            return main(arguments)
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except ChairliftError as error:
        print(f"chairlift: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`| head`): that is its right. Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        if error.errno not in _FULL:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"chairlift: {error.strerror}: the output could not be written.", file=sys.stderr)
        return FAILED
    return code


def overview() -> str:
    """What `chairlift --help` prints."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "usage: chairlift COMMAND ...",
            "",
            "An LLM inference server with three batching policies: static, dynamic, continuous.",
            "",
            *lines,
            "",
            "chairlift COMMAND --help lists a command's flags; chairlift --version says which version this is.",
            "Exit codes: 0 done, 1 found something wrong, 2 could not run.",
        ]
    )


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        print(overview(), file=sys.stderr)
        return FAILED
    name, *rest = arguments
    if name in {"-h", "--help", "help"}:
        print(overview())
        return OK
    if name in {"-V", "--version"}:
        print(f"chairlift {__version__}")
        return OK
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}."
        raise ConfigError(f"there is no command {name!r}; {meant} See chairlift --help.")
    return _run(name, rest)


def _run(name: str, rest: Sequence[str]) -> int:
    from chairlift.cli.parser import Parser

    command = import_module(f"chairlift.cli.{_MODULES.get(name, name)}")
    parser = Parser(f"chairlift {name}", COMMANDS[name])
    command.configure(parser)
    if {"-h", "--help"} & set(rest):
        parser.print_help()
        return OK
    code: int = command.run(parser.read(rest))
    return code
