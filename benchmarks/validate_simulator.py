"""How far the simulator is off: calibrates this machine, puts twelve held-out loads to the model and to the simulator,
three times each, and writes docs/simulator-accuracy.md's tables.

    make validate-simulator
    python -m benchmarks.validate_simulator --trace AzureLLMInferenceTrace_conv.csv --device this-machine.toml

The repeats go round over all cells, and rounds of the calibration lie between them, so that a machine that is slower
for a while is slower for all. Each round draws its loads anew, and its simulation gets the same loads. Nothing is
fitted to them.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import uvloop

from benchmarks._cells import CELLS, COMMON, FIGURES, Cell, Compared, aim, compare, figures
from chairlift.devices.file import load_device_model, save_device_model
from chairlift.devices.model import DeviceModel
from chairlift.engine.loader import LoadedModel
from chairlift.lab.calibration.against_run import against_run
from chairlift.lab.calibration.calibrate import finish, limits_of, timer_of
from chairlift.lab.calibration.measure import ROUNDS, Measured, joined, measure
from chairlift.lab.calibration.probes import probes
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.loads.traces import read_trace
from chairlift.lab.runs.store import RunEntry
from chairlift.lab.subjects import ModelSubject, SimulatedSubject, Subject
from chairlift.records.manifest import machine, versions
from chairlift.records.reader import Run

logger = logging.getLogger("validate")
ROOT = Path(__file__).parents[1]
MODEL = ROOT / ".models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
PAGE = ROOT / "docs" / "simulator-accuracy.md"
BEGIN, END = "<!-- measured: written by benchmarks/validate_simulator.py -->\n", "<!-- end of measured -->\n"
EXCERPT = {"requests": 22, "prompt": 400, "output": 160, "slower": 1.5}
"""Of a trace: so many requests in a row of those that are no longer than this, so many times slower."""
BLOCK_SIZE = 32


def main() -> int:
    """Calibrate unless there is a device model, run, write the page. 1 when an aim was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trace", type=Path, help="a trace for the last cell, such as the Azure conversation trace")
    parser.add_argument("--device", type=Path, help="a device model of this machine; without it one is measured")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="cells whose names contain one of these words")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "validation")
    parser.add_argument("--no-page", action="store_true", help="leave docs/simulator-accuracy.md as it is")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    began = time.monotonic()
    arguments.out.mkdir(parents=True, exist_ok=True)
    result, model = uvloop.run(_validate(arguments))
    result |= {"minutes": (time.monotonic() - began) / 60, "machine": machine(), "versions": versions(("openvino",))}
    (arguments.out / "validation.json").write_text(json.dumps(result, indent=1), "utf-8")
    text = "\n".join(report(result, model))
    print(text)
    if not arguments.no_page:
        head, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(head + BEGIN + text + "\n" + END + rest.partition(END)[2], "utf-8")
    return int(any(not one["met"] for cell in result["cells"] for one in cell["figures"].values()))


async def _validate(arguments: argparse.Namespace) -> tuple[dict[str, Any], DeviceModel]:
    """Rounds of the calibration and rounds of the loads take turns; then every load is simulated."""
    cells = [cell for cell in CELLS if (cell.load or arguments.trace) and _wanted(cell, arguments.only)]
    real = ModelSubject(str(arguments.model), {**COMMON, "threads": arguments.threads})
    real.prepare([cell.settings for cell in CELLS])
    loaded, measured = real.loaded, list[Measured]()
    timer, wanted = timer_of(loaded), probes(limits_of(loaded))
    folders: dict[str, list[Path]] = {cell.name: [] for cell in cells}
    await _run(real, _load(CELLS[0], None, 99), {}, arguments.out / "warm-up")  # a process's first steps are slower
    for repeat in range(arguments.repeats + 1):
        rounds = ROUNDS // arguments.repeats if repeat < arguments.repeats else ROUNDS % arguments.repeats
        done = sum(len(one.samples[0].times) for one in measured)
        if rounds and arguments.device is None:
            measured.append(measure(timer, wanted, rounds=rounds, first=done))
            logger.info("rounds %d to %d of the calibration", done + 1, done + rounds)
        for cell in cells if repeat < arguments.repeats else ():
            folders[cell.name].append(arguments.out / f"{CELLS.index(cell) + 1}-{repeat + 1}")
            found = await _run(real, _load(cell, arguments.trace, repeat), cell.settings, folders[cell.name][-1])
            logger.info("%s, repeat %d: %s", cell.name, repeat + 1, found["figures"])
    device = await _device(arguments, loaded, measured)
    model = load_device_model(device)
    simulated = SimulatedSubject(f"sim:{device}", {**COMMON, "block_size": BLOCK_SIZE, "outside_range": "warn"})
    result = []
    for cell in cells:
        pairs = []
        for repeat, folder in enumerate(folders[cell.name]):
            load = _load(cell, arguments.trace, repeat)
            ours = await _run(simulated, load, cell.settings, folder.with_name(f"{folder.name}-simulated"))
            pairs.append((_counted(folder, model), ours))
            logger.info("%s, repeat %d: %s", cell.name, repeat + 1, _line(*pairs[-1]))
        result.append(_cell(cell, pairs))
    return {"cells": result, "repeats": arguments.repeats}, model


async def _device(arguments: argparse.Namespace, loaded: LoadedModel, measured: Sequence[Measured]) -> Path:
    """The device model's file: fitted now, or the one that was given."""
    if arguments.device is not None:
        loaded.runner.close()
        return Path(arguments.device)
    found = await finish(loaded, joined(measured))
    path: Path = arguments.out / "this-machine.toml"
    save_device_model(found.model, path)
    samples = [{"term": one.term, "step": one.name, "times": one.times} for one in found.measured.samples]
    (arguments.out / "samples.json").write_text(json.dumps({"samples": samples, "host": found.host}), "utf-8")
    logger.info("calibrated: %s, left-out errors %s", found.form, found.model.provenance.errors)
    return path


def _wanted(cell: Cell, only: Sequence[str] | None) -> bool:
    return not only or any(word in cell.name for word in only)


def _load(cell: Cell, trace: Path | None, repeat: int) -> Load:
    if cell.load or trace is None:
        return replace(load_from_pairs(cell.load.split()), seed=101 + repeat)
    whole = read_trace(trace, "auto")
    rows = zip(whole.times, whole.prompt_tokens, whole.output_tokens, strict=True)
    short = [row for row in rows if row[1] <= EXCERPT["prompt"] and row[2] <= EXCERPT["output"]]
    first = 1000 * repeat % max(1, len(short) - int(EXCERPT["requests"]))
    chosen = short[first : first + int(EXCERPT["requests"])]
    path = Path(tempfile.gettempdir()) / f"chairlift-excerpt-{repeat}.csv"
    lines = [f"{(at - chosen[0][0]) / 1e9 * EXCERPT['slower']:.6f},{prompt},{output}" for at, prompt, output in chosen]
    path.write_text("\n".join(["time_s,prompt_tokens,output_tokens", *lines]) + "\n", "utf-8")
    return load_from_pairs(["arrivals=trace", f"arrivals.file={path}"])


async def _run(subject: Subject, load: Load, settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """One run, kept in `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    await subject.run(Schedule(load), settings, folder)
    return _counted(folder, None)


def _counted(folder: Path, model: DeviceModel | None) -> dict[str, Any]:
    """Figures of a kept run; and with a device model what that says of the run's own steps."""
    summary = RunEntry.read(folder).summary()
    records = Run(folder / "engine")
    steps = records.steps()
    met = None if model is None else against_run(model, steps)
    return {
        "figures": figures(summary),
        "met": None if met is None else {"decodes": asdict(met.decodes), "prompts": asdict(met.prompts)},
        "answered": summary.answered,
        "scheduled": summary.scheduled,
        "preemptions": sum(one.preemptions for one in records.requests()),
        "steps": sum(one.repeats for one in steps),
        "device_seconds": sum(one.device_time for one in steps) / 1e9,
    }


def _line(real: Mapping[str, Any], simulated: Mapping[str, Any]) -> str:
    parts = []
    for name in FIGURES:
        ours, theirs = simulated["figures"][name], real["figures"][name]
        parts.append(f"{name} {ours / theirs - 1:+.1%}" if ours and theirs else f"{name} -")
    met = [
        f"{kind} {one['predicted'] / one['measured'] - 1:+.1%}"
        for kind, one in (real["met"] or {}).items()
        if one["steps"]
    ]
    parts.append(f"steps: {' '.join(met)}")
    return ", ".join(parts) + f", preemptions {real['preemptions']} / {simulated['preemptions']}"


def _cell(cell: Cell, pairs: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    compared = compare([real["figures"] for real, _ in pairs], [ours["figures"] for _, ours in pairs])
    return {
        "name": cell.name,
        "load": cell.load,
        "settings": dict(cell.settings),
        "figures": {name: _figure(name, one) for name, one in compared.items()},
        "real": [real for real, _ in pairs],
        "simulated": [ours for _, ours in pairs],
    }


def _figure(name: str, one: Compared) -> dict[str, Any]:
    return asdict(one) | {"error": one.error, "spread": one.spread, "met": one.met(aim(name))}


# the page


def report(result: Mapping[str, Any], device: DeviceModel) -> Iterator[str]:
    """The measured part of the page, as Markdown."""
    about, source = result["machine"], device.provenance
    yield (
        f"{source.date}, {about['processor']}, {about['cpus']} CPUs, {about['system']}, "
        f"OpenVINO {result['versions'].get('openvino', '-')}; {device.model}; the whole took "
        f"{result['minutes']:.0f} minutes. Left-out errors of a step's time: "
        + ", ".join(f"{term} {share:.1%}" for term, share in source.errors.items())
        + "."
    )
    yield ""
    yield "| cell | " + " | ".join(FIGURES) + " | preemptions | steps: decodes | with prompts |"
    yield "|---|" + "---|" * (len(FIGURES) + 3)
    for cell in result["cells"]:
        figures_of = cell["figures"]
        cells = (_shown(figures_of.get(name)) for name in FIGURES)
        beside = (_preemptions(cell), _met(cell, "decodes"), _met(cell, "prompts"))
        yield f"| {' | '.join((cell['name'], *cells, *beside))} |"
    yield ""
    yield from _totals(result["cells"])
    yield ""
    yield "What was measured, means over the repeats (real / simulated; times in seconds):"
    yield ""
    yield "| cell | answered | tokens/s | TTFT p50 | TTFT p99 | TBT p50 | TBT p99 | E2E p50 | E2E p99 |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for cell in result["cells"]:
        chosen = ("tokens/s", "TTFT p50", "TTFT p99", "TBT p50", "TBT p99", "E2E p50", "E2E p99")
        cells = (_both(cell["figures"].get(name)) for name in chosen)
        answered = sum(one["answered"] for one in cell["real"])
        yield f"| {cell['name']} | {answered} | {' | '.join(cells)} |"


def _totals(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    every = [(name, one) for cell in cells for name, one in cell["figures"].items()]
    for title, names in (
        ("medians and throughput, aim 5%", [name for name in FIGURES if name.endswith(("p50", "/s"))]),
        ("90th percentiles, aim 5%", [name for name in FIGURES if name.endswith("p90")]),
        ("99th percentiles, aim 10%", [name for name in FIGURES if name.endswith("p99")]),
    ):
        errors = sorted(abs(one["error"]) for name, one in every if name in names)
        met = sum(one["met"] for name, one in every if name in names)
        if errors:
            middle = errors[len(errors) // 2]
            size = f"absolute error {middle:.1%} by the median, {errors[-1]:.1%} at worst"
            yield f"- {title}: {met} of {len(errors)} held; {size}."


def _shown(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return "n.o."
    text = f"{one['error']:+.0%} ±{one['spread']:.0%}"
    return text if one["met"] else f"**{text}**"


def _both(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return "n.o."
    real, simulated = (sum(one[name]) / len(one[name]) for name in ("real", "simulated"))
    return f"{real:.3g} / {simulated:.3g}"


def _met(cell: Mapping[str, Any], kind: str) -> str:
    """What the device model says of the real runs' own steps."""
    every = [one["met"][kind] for one in cell["real"] if one["met"]]
    measured = sum(one["measured"] for one in every)
    return f"{sum(one['predicted'] for one in every) / measured - 1:+.0%}" if measured else "-"


def _preemptions(cell: Mapping[str, Any]) -> str:
    real, simulated = ([one["preemptions"] for one in cell[name]] for name in ("real", "simulated"))
    return f"{', '.join(map(str, real))} / {', '.join(map(str, simulated))}" if any(real + simulated) else "0"


if __name__ == "__main__":
    raise SystemExit(main())
