"""`chairlift calibrate MODEL`: measures this machine, or fits a measured table, and writes device models."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chairlift.cli.engine_flags import INNER
from chairlift.cli.flags import add_flag, add_flags
from chairlift.cli.main import FOUND, OK
from chairlift.cli.parser import Parser
from chairlift.cli.units import PATH, WHOLE
from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ConfigError, DeviceModelError
from chairlift.engine.config import EngineConfig
from chairlift.runners.openvino.settings import RunnerSettings

if TYPE_CHECKING:
    from chairlift.devices.fit import Fit
    from chairlift.lab.calibration.calibrate import Calibration

_WITHOUT: Final = (*INNER, "record", "chat_template")
_POOR: Final = 0.15
"""A leave-one-out error of all steps above this is called poor."""


def configure(parser: Parser) -> None:
    """The model with the settings that decide how large steps get; or a table."""
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="a GGUF file, a Hugging Face directory or a name on the hub"
    )
    add_flag(parser, "table", PATH, "Fit this table instead: a CSV file with the columns of splitwise-sim's.")
    add_flag(parser, "out", PATH, "The device model's file; with --table, a folder for one of each group.")
    add_flag(parser, "rounds", WHOLE, "Repeats of each step. Fewer are quicker and noisier.", 7)
    parser.add_argument("--json", action="store_true", help="print what was measured and fitted as JSON")
    add_flags(parser, EngineConfig, "model", without=_WITHOUT)
    add_flags(parser, SchedulerConfig, "batching: how large a step may get")
    add_flags(parser, RunnerSettings, "device")


def run(arguments: argparse.Namespace) -> int:
    """Measure, fit, write. 1 when the fit is poor, or rows of the table were left out.

    Raises:
        ChairliftError: no such model or table, or it cannot be written.
    """
    table: Path | None = getattr(arguments, "table", None)
    if (table is None) == (arguments.model is None):
        raise ConfigError("give one of both: a MODEL to measure this machine with, or --table FILE to fit.")
    return _measure(arguments) if table is None else _fit_table(table, arguments)


def _measure(arguments: argparse.Namespace) -> int:
    import uvloop

    from chairlift.devices.file import save_device_model
    from chairlift.engine.loader import load_model
    from chairlift.lab.calibration.calibrate import calibrate
    from chairlift.lab.calibration.measure import ROUNDS

    given = vars(arguments)
    if "out" in given:
        _ready(given["out"])
    own = ("model", "table", "out", "rounds", "json")
    loaded = load_model(EngineConfig.of(arguments.model, {key: given[key] for key in given if key not in own}))
    out: Path = given.get("out", Path(f"{loaded.name}.toml"))
    _ready(out)
    found = uvloop.run(calibrate(loaded, rounds=given.get("rounds", ROUNDS), show=_progress))
    save_device_model(found.model, out)
    if arguments.json:
        print(json.dumps(_as_json(found, out), indent=2))
    else:
        print(*_lines(found, out), sep="\n")
    return FOUND if found.fit.errors["all"].left_out > _POOR else OK


def _ready(out: Path) -> None:
    """Raises ConfigError where a device model should not or could not be written: better now than after minutes."""
    from chairlift.devices.file import load_device_model

    if out.suffix != ".toml":
        raise ConfigError(f"--out {out}: a device model's name ends in .toml.")
    if out.exists():
        try:
            load_device_model(out)
        except DeviceModelError as error:
            raise ConfigError(f"--out {out} is there and no device model: it is left alone; name another.") from error
    _writable(out.parent)


def _writable(folder: Path) -> None:
    """Make it where it is missing, and try to write there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"the folder {folder} cannot be written: {error.strerror}; name another with --out."
        ) from error


def _fit_table(path: Path, arguments: argparse.Namespace) -> int:
    from chairlift.devices.file import save_device_model
    from chairlift.devices.from_table import fit_group, lines
    from chairlift.devices.table import read_table

    table = read_table(path)
    findings = [*table.findings, *(one for group in table.groups.values() for one in group.findings)]
    fits = {str(name): fit_group(group) for name, group in table.groups.items()}
    out: Path | None = getattr(arguments, "out", None)
    written = []
    if out is not None:
        _writable(out)
        for fit in fits.values():
            model = fit.model(source=path.name)
            file = out / f"{model.name.replace('/', '-')}.toml"
            save_device_model(model, file)
            written.append(str(file))
    if arguments.json:
        errors = {
            name: {"formula": _errors(fit.formula), "table": _errors(fit.tabulated)} for name, fit in fits.items()
        }
        print(json.dumps({"findings": findings, "errors": errors, "written": written}, indent=2))
    else:
        print(*lines(table), *(f"written: {name}" for name in written), sep="\n")
    return FOUND if findings else OK


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{done:,} of {total:,} steps measured" * (done < total), end="", file=sys.stderr, flush=True)


def _lines(found: Calibration, out: Path) -> Iterator[str]:
    model, fit = found.model, found.fit
    yield f"{model.name}: {len(found.measured.samples)} different steps, matrix products as {found.form}"
    yield ""
    yield f"{'error of a step':<18}{'steps':>7}{'fit':>8}{'left out':>10}{'worst':>8}"
    for term, error in fit.errors.items():
        yield f"{term:<18}{error.samples:>7}{error.mape:>8.1%}{error.left_out:>10.1%}{error.worst:>8.1%}"
    others = ", ".join(f"{name} {one.errors['all'].left_out:.1%}" for name, one in found.fits.items())
    yield f"left out, by form: {others}"
    yield ""
    host = model.host
    yield f"host: {host.fixed / 1e9:.0f} us and {host.per_sequence / 1e9:.1f} us a sequence between two steps"
    yield f"settling: the first of a row of decodes takes {model.step.settling / 1e12:.2f} ms longer than the next"
    valid = model.valid
    yield (
        f"holds to {valid.tokens:,} tokens and {valid.rows:,} rows in a step, {valid.context:,} positions of a "
        f"sequence, {valid.total_context:,} of all decodes"
    )
    for title, notes in (("left out as outliers", fit.outliers), ("repeats that spread", fit.noisy)):
        if notes:
            yield f"{title}: {len(notes)}"
            yield from (f"  {note}" for note in notes[:5])
    yield from (f"not measured, the KV pool is too small: {one.shape().describe()}" for one in found.measured.skipped)
    yield f"written: {out}; use it as sim:{out}"


def _as_json(found: Calibration, out: Path) -> dict[str, Any]:
    return {
        "file": str(out),
        "form": found.form,
        "settling_ns": list(found.measured.settling),
        "errors": {name: _errors(fit) for name, fit in found.fits.items()},
        "outliers": list(found.fit.outliers),
        "noisy": list(found.fit.noisy),
        "samples": [
            {"term": one.term, "step": one.name, "times_ns": list(one.times)} for one in found.measured.samples
        ],
        "host_ns": [{"rows": rows, "time": time} for rows, time in found.host],
    }


def _errors(fit: Fit) -> dict[str, dict[str, float]]:
    return {
        term: {"samples": error.samples, "mape": error.mape, "left_out": error.left_out, "worst": error.worst}
        for term, error in fit.errors.items()
    }
