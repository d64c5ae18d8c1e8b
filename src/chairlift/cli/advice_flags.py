"""The flags of commands that look for settings in the simulator: load, device, targets, how much is tried."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from chairlift.cli.flags import add_flag, add_flags
from chairlift.cli.parser import Parser
from chairlift.cli.target_flags import add_load_flags, load_of
from chairlift.cli.units import DURATION, NUMBER, PATH, TEXT, WHOLE, choice
from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ConfigError
from chairlift.runners.simulated import SimulatorSettings

if TYPE_CHECKING:
    from chairlift.advisor.evaluate.rounds import Rounds
    from chairlift.advisor.evaluate.run import Problem
    from chairlift.advisor.evaluate.targets import Targets
    from chairlift.devices.model import DeviceModel
    from chairlift.lab.loads.load import Load

MODEL: Final = "llama-3.1-8b"
"""Where a device is named and no model."""
_QUESTIONS: Final = {
    "prompt": (WHOLE, "Prompt tokens on average."),
    "output": (WHOLE, "Output tokens on average."),
    "rate": (NUMBER, "Requests a second; 0: everything is there at once."),
    "prompt_cv": (NUMBER, "Standard deviation over mean of the prompts' lengths; 0: all alike. Default: 0.8."),
    "output_cv": (NUMBER, "The same of the answers. Default: 1."),
    "count": (WHOLE, "How many requests. Default: 400."),
}
_LIMITS: Final = {
    "ttft_p99": "p99 of the time to first token must not be longer.",
    "itl_p99": "p99 of the time between tokens must not be longer.",
    "e2e_p99": "p99 of the time from end to end must not be longer.",
}


def add_advice_flags(parser: Parser, objectives: tuple[str, ...], margin: float) -> None:
    """All of them, and the settings that the user decides himself.

    Args:
        parser: of the command.
        objectives: what can be asked to be best.
        margin: of limits, by default.
    """
    load = add_load_flags(parser)
    add_flag(
        load, "trace", PATH, "A recorded trace (Azure, Mooncake, BurstGPT, Bailian, or time_s, prompt_tokens, ...)."
    )
    add_flag(load, "run", PATH, "The folder of a run: its load.")
    for name, (kind, doc) in _QUESTIONS.items():
        add_flag(load, name, kind, doc)
    device = parser.add_argument_group("device")
    add_flag(device, "device", TEXT, "A built-in device (h100-sxm, l4, ...), DEVICE/MODEL, or a device model (.toml).")
    add_flag(device, "model", TEXT, "A built-in model, a config.json, or a model's directory.", MODEL)
    add_flag(device, "tensor_parallel_size", WHOLE, "Devices that work as one.", 1)
    add_flag(device, "weights", choice(("f32", "bf16", "f16", "f8", "int8", "int4")), "How weights are stored.", "bf16")
    add_flag(device, "kv", choice(("f32", "bf16", "f16", "f8", "int8")), "How keys and values are stored.", "bf16")
    wanted = parser.add_argument_group("targets")
    add_flag(
        wanted,
        "target",
        choice(objectives),
        "What is to be best. Default: throughput where everything is there, users wait for answers, or limits are "
        "given (tune: capacity where requests come at a rate and limits are given); else mean-e2e.",
    )
    for name, doc in _LIMITS.items():
        add_flag(wanted, name, DURATION, doc)
    add_flag(wanted, "margin", NUMBER, "Share of each limit that must be left in the simulation.", margin)
    much = parser.add_argument_group("how much is tried")
    add_flag(much, "requests", WHOLE, "Most requests of a round.", 400)
    add_flag(much, "rounds", WHOLE, "Rounds: seeds of a load that is drawn, stretches of a trace.", 3)
    add_flag(much, "workers", WHOLE, "Processes. Default: one for each core.")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    add_flag(parser, "for", TEXT, "Flags for a framework, too: vllm, sglang, tgi, tensorrt-llm, triton, ...")
    add_flag(parser, "framework_version", TEXT, "Its version. Default: the one that the table was checked with.")
    add_flags(parser, SchedulerConfig, "batching: what is given is not searched", without=("policy", "max_wait"))
    add_flags(parser, SimulatorSettings, "simulated device")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, read from flags."""

    problem: Problem
    load: Rounds
    targets: Targets
    assumed: tuple[str, ...]
    """What nobody said."""


def read_question(arguments: argparse.Namespace, margin: float, *, capacity: bool = False) -> Asked:
    """What is asked.

    Args:
        arguments: from the flags.
        margin: of limits, by default.
        capacity: a load with a rate and limits asks how much of it can be taken, unless another target is named.

    Raises:
        ConfigError: a part is missing or cannot be.
        DeviceModelError: the device is unknown.
    """
    from chairlift.advisor.evaluate.base import problem_of
    from chairlift.advisor.evaluate.rounds import REQUESTS, rounds_of
    from chairlift.advisor.evaluate.targets import CAPACITY, Targets, default_objective
    from chairlift.advisor.flags.flags import flags_for

    given = vars(arguments)
    assumed: list[str] = []
    if "for" in given:
        flags_for(
            given["for"], SchedulerConfig(), version=given.get("framework_version")
        )  # refused now, not at the end
    device = read_device(arguments, assumed)
    with TemporaryDirectory() as scratch:
        load = rounds_of(
            read_load_flags(arguments, Path(scratch), assumed),
            count=given.get("rounds", 3),
            requests=given.get("requests", REQUESTS),
            longest=min(device.valid.context, given.get("max_model_len", device.valid.context)),
        )
    limits = {name: given[name] for name in _LIMITS if name in given}
    objective = given.get("target")
    if objective is None:
        objective = default_objective(waits_for_the_target=load.waits_for_the_target, limits=bool(limits))
        if capacity and limits and load.has_a_rate:
            objective = CAPACITY
    targets = Targets(objective, **limits, margin=given.get("margin", margin if limits else 0.0))
    if "target" not in given:
        assumed.append(f"to be best: {targets.words} (--target)")
    names = {one.name for part in (SchedulerConfig, SimulatorSettings) for one in fields(part)}
    settings: Mapping[str, Any] = {name: value for name, value in given.items() if name in names}
    return Asked(problem_of(device, load, targets, settings), load, targets, tuple(assumed))


def read_device(arguments: argparse.Namespace, assumed: list[str]) -> DeviceModel:
    """The device model that is named.

    Raises:
        ConfigError: none is.
        DeviceModelError: it is unknown.
    """
    from chairlift.devices.registry import device_names, find_device_model

    name, model = getattr(arguments, "device", None), getattr(arguments, "model", None)
    if name is None:
        raise ConfigError(
            f"--device is missing: one of {', '.join(device_names())}, DEVICE/MODEL, or the file that "
            "`chairlift calibrate` wrote for this machine."
        )
    if model is None and not name.endswith(".toml") and "/" not in name:
        model = MODEL
        assumed.append(f"model: {model} (--model)")
    return find_device_model(
        name,
        model,
        tensor_parallel=getattr(arguments, "tensor_parallel_size", 1),
        weights=getattr(arguments, "weights", "bf16"),
        kv=getattr(arguments, "kv", "bf16"),
    )


def read_load_flags(
    arguments: argparse.Namespace,
    scratch: Path,
    assumed: list[str],
    ask: Callable[[str], str] = input,
) -> Load:
    """The load: from a file, a trace, a run, or three answers, which are asked for where a person is there.

    Raises:
        ConfigError: there is none, or two.
    """
    from chairlift.advisor.evaluate.asked import Answers, load_of_run, load_of_trace

    given = vars(arguments)
    answers = {name: given[name] for name in _QUESTIONS if name in given}
    ways = [
        name
        for name, there in (
            ("--load or --set", "load" in given or bool(arguments.pairs)),
            ("--trace", "trace" in given),
            ("--run", "run" in given),
            ("--prompt, --output and --rate", bool(answers)),
        )
        if there
    ]
    if len(ways) > 1:
        raise ConfigError(f"{' and '.join(ways)} are several loads: give one of them.")
    if "trace" in given:
        return load_of_trace(given["trace"])
    if "run" in given:
        return load_of_run(given["run"], scratch)
    if ways == ["--load or --set"]:
        return load_of(arguments)
    if not answers and sys.stdin.isatty():
        answers = _asked(ask)
    if missing := [name for name in ("prompt", "output", "rate") if name not in answers]:
        raise ConfigError(
            f"--{' and --'.join(missing)} missing: a load is --load FILE, --trace FILE, --run FOLDER, or "
            "--prompt TOKENS --output TOKENS --rate REQUESTS_A_SECOND."
        )
    said = Answers(**answers)
    assumed.append(str(said))
    return said.load()


def _asked(ask: Callable[[str], str]) -> dict[str, Any]:
    """The three questions."""
    found: dict[str, Any] = {}
    for name, question in (
        ("prompt", "How many tokens has a prompt on average? "),
        ("output", "How many tokens has an answer on average? "),
        ("rate", "How many requests come a second (0: all are there at once)? "),
    ):
        kind = _QUESTIONS[name][0]
        try:
            found[name] = kind.read(ask(question))
        except ValueError as error:
            raise ConfigError(f"--{name} takes {error}") from error
    return found


class Progress:
    """Trials done so far, on standard error where that is a terminal."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()

    def __call__(self, done: int) -> None:
        if self._terminal:
            print(f"\r\x1b[K{done:,} simulations", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Take the line away."""
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def framework_lines(arguments: argparse.Namespace, problem: Problem, settings: Mapping[str, Any]) -> list[str]:
    """The settings in the words of --for; nothing without it.

    Raises:
        ConfigError: nobody knows the framework.
    """
    framework = getattr(arguments, "for", None)
    if framework is None:
        return []
    from chairlift.advisor.flags.flags import flags_for
    from chairlift.advisor.flags.render import report_lines
    from chairlift.advisor.flags.settings import MemorySettings

    config, simulator = problem.config(settings), problem.simulator(settings)
    memory = MemorySettings(
        gpu_memory_utilization=simulator.gpu_memory_utilization,
        kv_cache_memory=simulator.kv_cache_memory,
        num_kv_blocks=simulator.num_kv_blocks,
        block_size=simulator.block_size,
        tensor_parallel_size=problem.device.tensor_parallel,
        plan=simulator.runner(problem.device, config).memory,
    )
    said = flags_for(framework, config, memory, version=getattr(arguments, "framework_version", None))
    return ["", *report_lines(said)]
