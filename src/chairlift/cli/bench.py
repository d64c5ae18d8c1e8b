"""`chairlift bench TARGET`: one load against one target, kept as a run and printed with what its figures mean."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chairlift.cli.flags import add_flag
from chairlift.cli.main import FOUND, INTERRUPTED, OK
from chairlift.cli.parser import Parser
from chairlift.cli.target_flags import TargetFlags, add_load_flags, add_target_flags, load_of
from chairlift.cli.units import DURATION, PATH, TEXT, choice
from chairlift.core.errors import ConfigError

if TYPE_CHECKING:
    from chairlift.lab.loads.load import Load
    from chairlift.lab.loads.schedule import Schedule
    from chairlift.lab.runs.bench import Bench, BenchResult
    from chairlift.lab.targets.base import Target
    from chairlift.records.client import Observation
    from chairlift.records.client_rates import Limits

_LIMITS: Final = {
    "ttft_limit": "Goodput: longest time to first token, from schedule.",
    "itl_limit": "Goodput: longest time between any two tokens of a request.",
    "tpot_limit": "Goodput: longest mean time between a request's tokens.",
    "end_to_end_limit": "Goodput: longest time from schedule to the end of the answer.",
}


def configure(parser: Parser) -> None:
    """Target, load, limits, how to show it; and the settings of servers and of models."""
    parser.add_argument(
        "target", metavar="TARGET", nargs="?", help="http://HOST:PORT of a server, a model, or sim:DEVICE/MODEL"
    )
    load = add_load_flags(parser)
    add_flag(load, "time_limit", DURATION, "Cut everything at this moment.")
    figures = parser.add_argument_group("figures")
    for name, doc in _LIMITS.items():
        add_flag(figures, name, DURATION, doc)
    add_flag(figures, "as", choice(("vllm", "guidellm", "aiperf")), "Show the run by another tool's definitions, too.")
    figures.add_argument("--json", action="store_true", help="print the run's manifest instead of text")
    figures.add_argument("--definitions", action="store_true", help="print what each figure means; needs no target")
    device = "TARGET is a model: its device model (calibrate writes one); the saturation is told against it."
    add_flag(figures, "device", TEXT, device)
    add_flag(figures, "runs", PATH, "The folder that keeps runs.", Path("runs"))
    add_target_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the load. 1 when a request failed, a trace was refused, or the client was the bottleneck.

    Raises:
        ChairliftError: target, load or settings will not do.
    """
    from chairlift.records.client_summary import definitions
    from chairlift.records.tools import DEFINITIONS, ToolName

    tool: ToolName | None = getattr(arguments, "as", None)
    if arguments.definitions and not (arguments.json and arguments.target):  # the manifest has them
        told = definitions() if tool is None else definitions(DEFINITIONS[tool].metrics)
        _print_definitions(told)
        if arguments.target is None:
            return OK
    if arguments.target is None:
        raise ConfigError(
            "TARGET is missing: a URL such as http://localhost:8000, or a model. See chairlift bench --help."
        )

    import uvloop

    from chairlift.cli.figures import tool_lines
    from chairlift.records.client_checks import check
    from chairlift.records.tools import as_tool

    limits = _limits(arguments)
    load = load_of(arguments)
    bench = _bench(arguments, load, limits)
    result = uvloop.run(_measure(bench, quiet=arguments.json))
    view = None
    if tool is not None:
        view = as_tool(tool, [one for one in check(result.traces).traces if not one.warmup])
    if arguments.json:
        _print_json(result, view)
    else:
        _print_result(result)
        if view is not None:
            print("", *tool_lines(view), sep="\n")
    if result.stopped:
        return INTERRUPTED
    return FOUND if result.flawed else OK


async def _measure(bench: Bench, *, quiet: bool) -> BenchResult:
    from chairlift.lab.client.options import Stop
    from chairlift.lab.client.recording import interrupt_stops
    from chairlift.lab.loads.describe import Description
    from chairlift.lab.targets.base import TargetInfo

    def announce(info: TargetInfo, described: Description) -> None:
        if not quiet:
            about = " ".join(part for part in (info.kind, info.version, f"at {info.name}") if part)
            print(f"{info.model}: {about}", f"prompts: {info.prompts}", *info.notes, "", sep="\n")
            print(described.table(), "", sep="\n", flush=True)

    stop = Stop()
    display = _Display()
    with interrupt_stops(stop):
        try:
            return await bench.run(stop, announce, display)
        finally:
            display.end()


class _Display:
    """Progress on standard error, where that is a terminal."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._ended = self._failed = 0

    def __call__(self, observation: Observation) -> None:
        from chairlift.records.client import HealthSample, RequestTrace

        if isinstance(observation, RequestTrace):
            self._ended += 1
            self._failed += not observation.ok
        elif isinstance(observation, HealthSample) and self._terminal:
            line = f"{observation.time / 1e9:.0f} s: {self._ended:,} ended, {self._failed:,} of them failed, "
            print(f"\r\x1b[K{line}{observation.in_flight:,} in flight", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Take the line away."""
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _bench(arguments: argparse.Namespace, load: Load, limits: Limits | None) -> Bench:
    from chairlift.devices.registry import find_device_model
    from chairlift.lab.client.options import RunOptions
    from chairlift.lab.loads.schedule import Schedule
    from chairlift.lab.runs.bench import Bench
    from chairlift.lab.runs.store import RunStore
    from chairlift.lab.targets.model import ModelTarget
    from chairlift.lab.targets.named import target_named
    from chairlift.lab.targets.url import UrlSettings

    about = TargetFlags.of(arguments)
    tokenizer = about.read_tokenizer()
    target: Target = target_named(
        about.target, server=UrlSettings(**about.server), tokenizer=tokenizer, engine=about.engine
    )
    device: str | None = getattr(arguments, "device", None)
    if isinstance(target, ModelTarget):
        tokenizer = target.engine.tokenizer
        target.device = None if device is None else find_device_model(device)
    elif device is not None:
        raise ConfigError(f"--device cannot be set: {about.target} is no model in this process.")
    counter = tokenizer
    schedule: Schedule = Schedule(load, None if counter is None else lambda text: len(counter.encode(text)))
    return Bench(
        target,
        schedule,
        RunStore(getattr(arguments, "runs", Path("runs"))).new(load.name or load.arrivals.KIND),
        RunOptions(time_limit=getattr(arguments, "time_limit", None)),
        about.for_record(),
        limits,
    )


def _limits(arguments: argparse.Namespace) -> Limits | None:
    from chairlift.records.client_rates import Limits

    given: dict[str, Any] = {
        name.removesuffix("_limit"): getattr(arguments, name) for name in _LIMITS if hasattr(arguments, name)
    }
    return Limits(**given) if given else None


def _print_definitions(told: dict[str, str]) -> None:
    from chairlift.cli.figures import definition_lines

    print(*definition_lines(told), "", sep="\n")


def _print_json(result: BenchResult, view: Any) -> None:
    from dataclasses import asdict

    from chairlift.records.client_summary import distribution_to_json, rate_to_json

    told = {"run": str(result.entry.folder), **asdict(result.entry.manifest)}
    if view is not None:
        told["as"] = {
            "tool": view.tool.name,
            "source": view.tool.source,
            "successful": view.successful,
            "failed": view.failed,
            "metrics": {one.metric.name: distribution_to_json(one) for one in view.distributions},
            view.output_rate.name: rate_to_json(view.output_rate),
        }
    print(json.dumps(told, indent=2))


def _print_result(result: BenchResult) -> None:
    from chairlift.cli.figures import client_lines, summary_lines

    print(*summary_lines(result.summary), sep="\n")
    if not result.info.virtual_time:  # no client that could be late
        print(*client_lines(result.client), sep="\n")
    if (used := result.usage) is not None:
        parts = [f"busy {_share(used.busy)} of the time", f"{_share(used.useful)} of its tokens useful"]
        if used.saturation is not None:
            parts.append(f"saturation {_share(used.saturation)}")
        print(f"device: {', '.join(parts)}")
    if result.stopped:
        print("stopped early: what was under way is cut and counts as scheduled")
    print(f"kept in {result.entry.folder}; --definitions says what each figure means")


def _share(value: float | None) -> str:
    """In per cent, three digits that count; a dash for nothing."""
    return "-" if value is None else f"{100 * value:.3g}%"
