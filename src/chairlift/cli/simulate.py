"""`chairlift simulate`: a load on a simulated device under each policy, or over any setting, in seconds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from chairlift.cli.flags import add_flag, add_flags, field_kinds
from chairlift.cli.main import FAILED, FOUND, OK
from chairlift.cli.parser import Parser
from chairlift.cli.target_flags import add_load_flags, load_of
from chairlift.cli.units import DURATION, PATH, TEXT, WHOLE, Kind, choice
from chairlift.core.config import POLICIES, SchedulerConfig, flag
from chairlift.core.errors import ConfigError
from chairlift.engine.config import ALIASES
from chairlift.runners.simulated import SimulatorSettings

if TYPE_CHECKING:
    from chairlift.devices.model import DeviceModel
    from chairlift.lab.simulation_figures import Spread
    from chairlift.lab.sweep import SimulationJob, SimulationOutcome

_FORMATS: Final = ("f32", "bf16", "f16", "f8", "int8", "int4")
_PARTS: Final = (SchedulerConfig, SimulatorSettings)
_FEW: Final = 100
_SWEPT: Final = "several values of one setting: max_num_seqs=8,16,32; each with every policy, and with every other one"


def configure(parser: Parser) -> None:
    """Device, load, settings, and what to vary."""
    device = parser.add_argument_group("device")
    add_flag(device, "device", TEXT, "A built-in device (h100-sxm, ...), DEVICE/MODEL, a sheet, or a calibrated .toml.")
    add_flag(device, "model", TEXT, "A built-in model (llama-3.1-8b, ...), a config.json or a model's directory.")
    add_flag(device, "tensor_parallel_size", WHOLE, "Devices that work as one.", 1)
    add_flag(device, "weights", choice(_FORMATS), "How weights are stored, on a built-in device.", "bf16")
    add_flag(device, "kv_cache_dtype", choice(_FORMATS[:-1]), "How keys and values are kept there.", "bf16")
    load = add_load_flags(parser)
    add_flag(load, "time_limit", DURATION, "Cut everything at this moment of virtual time.")
    several = parser.add_argument_group("several simulations")
    several.add_argument("--sweep", nargs="+", action="extend", default=[], metavar="SETTING=V1,V2,...", help=_SWEPT)
    add_flag(several, "jobs", WHOLE, "Processes. Default: as many as CPUs may be used.")
    add_flag(several, "runs", PATH, "Keep every run in this folder, as bench does. Default: only the table is made.")
    several.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_flags(parser, SchedulerConfig, "batching (without --policy: all three)")
    add_flags(parser, SimulatorSettings, "simulated device")


def run(arguments: argparse.Namespace) -> int:
    """Simulate, and print a line for each. 1: one could not be simulated, or requests were refused; 2: none could.

    Raises:
        ChairliftError: device, load or settings will not do.
    """
    from chairlift.devices.registry import find_device_model
    from chairlift.lab.client.options import RunOptions
    from chairlift.lab.sweep import SimulationOutcome, combinations, job, run_jobs
    from chairlift.runners.openvino.settings import allowed_threads

    given = vars(arguments)
    if "device" not in given:
        raise ConfigError("--device is missing: a built-in one such as h100-sxm, or a file that calibrate wrote.")
    model = find_device_model(
        given["device"],
        given.get("model"),
        tensor_parallel=given.get("tensor_parallel_size", 1),
        weights=given.get("weights", "bf16"),
        kv=given.get("kv_cache_dtype", "bf16"),
    )
    load = load_of(arguments)
    time_limit = RunOptions(time_limit=given.get("time_limit")).time_limit
    swept = _swept(arguments.sweep)
    if twice := sorted(swept.keys() & given.keys()):
        raise ConfigError(f"{flag(twice[0])} is given beside --sweep {twice[0]}: leave one of the two out.")
    if (workers := given.get("jobs", allowed_threads())) < 1:
        raise ConfigError(f"--jobs is {workers}; it must be at least 1.")
    names = {one.name for part in _PARTS for one in fields(part)}
    settings = {name: given[name] for name in given if name in names}
    policies = swept.pop("policy", [settings.pop("policy")] if "policy" in settings else list(POLICIES))
    more = {"time_limit": time_limit, "runs": given.get("runs")}
    made = [
        job(model, load, combined, ["policy", *swept], **more) for combined in combinations(policies, swept, settings)
    ]
    jobs = [one for one in made if not isinstance(one, SimulationOutcome)]
    done = iter(run_jobs(jobs, workers, _progress))
    outcomes = [one if isinstance(one, SimulationOutcome) else next(done) for one in made]
    if arguments.json:
        print(json.dumps(_as_json(model, load.to_table(), outcomes), indent=2, default=str))
    else:
        print(*_lines(model, jobs, outcomes), sep="\n")
    return _code(outcomes)


def _code(outcomes: Sequence[SimulationOutcome]) -> int:
    simulated = [one.figures for one in outcomes if one.figures is not None]
    if not simulated:
        return FAILED
    whole = all(0 < figures.scheduled == figures.answered for figures in simulated)
    return OK if whole and len(simulated) == len(outcomes) else FOUND


def _swept(given: Sequence[str]) -> dict[str, list[Any]]:
    """Settings and their values, read as their flags are."""
    kinds: dict[str, Kind | None] = {name: kind for part in _PARTS for name, kind in field_kinds(part).items()}
    swept: dict[str, list[Any]] = {}
    for text in given:
        name, _, values = text.partition("=")
        name = name.removeprefix("--").replace("-", "_")
        name = ALIASES.get(name, name)
        if name not in kinds or not values:
            raise ConfigError(f"--sweep {text}: give SETTING=V1,V2,... with a setting of this command.")
        if name in swept:
            raise ConfigError(f"--sweep has {name} twice: write {name}=V1,V2,... once.")
        kind = kinds[name]
        try:
            swept[name] = [_switch(one) if kind is None else kind.read(one) for one in values.split(",")]
        except ValueError as error:
            raise ConfigError(f"--sweep {text}: {flag(name)} takes {error}.") from error
        if len(set(swept[name])) < len(swept[name]):
            raise ConfigError(f"--sweep {text}: a value is there twice.")
    return swept


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError("on or off")
    return text == "on"


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        width = 40
        bar = "#" * (done * width // total)
        line = f"\r\x1b[K[{bar:<{width}}] {done:,} of {total:,}" if done < total else "\r\x1b[K"
        print(line, end="", file=sys.stderr, flush=True)


def _lines(model: DeviceModel, jobs: Sequence[SimulationJob], outcomes: Sequence[SimulationOutcome]) -> Iterator[str]:
    from chairlift.lab.loads.describe import describe
    from chairlift.lab.loads.schedule import Schedule
    from chairlift.lab.targets.simulated import trust

    yield trust(model)
    if jobs:
        yield from ("", describe(Schedule(jobs[0].load)).table(), "")
    rows = [_row(one) for one in outcomes if one.figures is not None]
    if rows:
        heads = list(rows[0])
        widths = [max(len(head), *(len(row[head]) for row in rows)) for head in heads]
        words = len(outcomes[0].varied)
        for cells in (heads, *(list(row.values()) for row in rows)):
            yield "  ".join(
                f"{cell:<{width}}" if i < words else f"{cell:>{width}}"
                for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ).rstrip()
        yield ""
        yield "Times in seconds, from the moment a request was due; - where nobody outside could observe it."
        if any(one.figures is not None and one.figures.answered < _FEW for one in outcomes):
            yield f"A p99 of fewer than {_FEW} values would be the largest in other words, and is - too."
    for one in outcomes:
        label = ", ".join(f"{name} {_shown(name, value)}" for name, value in one.varied.items())
        if one.error:
            yield f"{label}: {one.error}"
        if one.figures is not None and one.figures.growth is not None:
            before, after = one.figures.growth
            yield (
                f"{label}: the queue still grew, TTFT p50 from {before:.3g} s in the second quarter of the load to "
                f"{after:.3g} s in the last: the latencies say how long the load was."
            )
        yield from (f"{label}: {note}" for note in one.notes)
        if one.folder:
            yield f"{label}: kept in {one.folder}"


def _row(one: SimulationOutcome) -> Mapping[str, str]:
    figures = one.figures
    if figures is None:
        return {}
    rate = figures.output_tokens_per_second
    return {
        **{name: _shown(name, value) for name, value in one.varied.items()},
        "answered": f"{figures.answered:,}/{figures.scheduled:,}",
        "tokens/s": "-" if rate is None else f"{rate:,.0f}",
        "TTFT p50": _seconds(figures.ttft, 50),
        "p99": _seconds(figures.ttft, 99),
        "TBT p50": _seconds(figures.time_between_tokens, 50),
        "p99 ": _seconds(figures.time_between_tokens, 99),
        "E2E p50": _seconds(figures.end_to_end, 50),
        "p99  ": _seconds(figures.end_to_end, 99),
        "busy": f"{figures.busy:.0%}",
        "useful": f"{figures.useful:.0%}",
        "preempted": f"{figures.preemptions:,}",
        "KV blocks": f"{one.kv_blocks:,}",
    }


def _shown(name: str, value: Any) -> str:
    """As its flag would be written."""
    kinds: dict[str, Kind | None] = {key: kind for part in _PARTS for key, kind in field_kinds(part).items()}
    kind = kinds[name]
    return ("on" if value else "off") if kind is None else kind.write(value)


def _seconds(spread: Spread | None, percent: float) -> str:
    from chairlift.records.metrics import ENOUGH

    return "-" if spread is None or spread.count < ENOUGH[percent] else f"{spread.percentiles[percent]:.3g}"


def _as_json(model: DeviceModel, load: Mapping[str, Any], outcomes: Sequence[SimulationOutcome]) -> dict[str, Any]:
    return {
        "device": model.name,
        "provenance": {"kind": model.provenance.kind, "errors": dict(model.provenance.errors)},
        "load": load,
        "units": "seconds; tokens a second; shares",
        "simulations": [
            {
                "settings": dict(one.varied),
                "figures": None if one.figures is None else one.figures.to_json(),
                "error": one.error,
                "notes": list(one.notes),
                "kv_blocks": one.kv_blocks,
                "run": one.folder,
            }
            for one in outcomes
        ],
    }
