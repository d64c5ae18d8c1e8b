"""A device model as a file: readable TOML, exact in both directions.

    format = 1
    device = "h100-sxm"
    model = "llama-3.1-8b"
    tensor_parallel = 1

    [provenance]    kind, machine, date, notes;  [provenance.versions]  [provenance.errors]
    [step]          coefficients, each a time with a unit: floor = "6.6ms", per_token = "26.1us", ...
    [step.tokens_table] / [step.context_table]    at = [1, 8, ...], time = ["6.6ms", ...]
    [host]          fixed, per_sequence
    [valid]         tokens, rows, context, total_context
    [memory]        sizes with a unit (may be absent)
    [shape]         sizes of the model, for counting work (may be absent)

A key that is not known is refused, so that a misspelt coefficient does not silently count as zero.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from chairlift.core.errors import DeviceModelError
from chairlift.core.work import ModelShape
from chairlift.devices.curve import Table
from chairlift.devices.memory import MemoryModel
from chairlift.devices.model import DeviceModel, HostTerms, Provenance, StepTerms
from chairlift.devices.quantities import read_size, read_time, write_size, write_time
from chairlift.devices.toml import Section, load, parse, render
from chairlift.devices.valid import ValidRange

FORMAT: Final = 1
"""Version of the file's layout; raised when an older reader would misread it."""

_TABLES: Final = ("tokens_table", "context_table")


def load_device_model(path: Path) -> DeviceModel:
    """Read a device model.

    Raises:
        DeviceModelError: the file cannot be read, or something in it is missing, unknown or impossible; the message
            names the key.
    """
    return _model(load(path))


def parse_device_model(text: str, source: str = "device model") -> DeviceModel:
    """The same from a text."""
    return _model(parse(text, source))


def save_device_model(model: DeviceModel, path: Path) -> None:
    """Write the file. Raises DeviceModelError when that fails."""
    try:
        path.write_text(render_device_model(model), "utf-8")
    except OSError as error:
        raise DeviceModelError(f"{path} cannot be written: {error}.") from error


def render_device_model(model: DeviceModel) -> str:
    """The text of the file: parse_device_model() of it gives an equal model."""
    origin = model.provenance
    step = {f.name: getattr(model.step, f.name) for f in fields(StepTerms)}
    sections: list[tuple[str, dict[str, Any]]] = [
        (
            "",
            {
                "format": FORMAT,
                "device": model.device,
                "model": model.model,
                "tensor_parallel": model.tensor_parallel,
            },
        ),
        (
            "provenance",
            {
                "kind": origin.kind,
                "machine": origin.machine or None,
                "date": origin.date or None,
                "notes": origin.notes or None,
            },
        ),
    ]
    if origin.versions:
        sections.append(("provenance.versions", dict(origin.versions)))
    if origin.errors:
        sections.append(("provenance.errors", dict(origin.errors)))
    sections.append(("step", {name: write_time(value) for name, value in step.items() if name not in _TABLES}))
    sections += [
        (f"step.{name}", {"at": table.xs, "time": [write_time(time) for time in table.ys]})
        for name in _TABLES
        if (table := step[name]) is not None
    ]
    sections.append(("host", {f.name: write_time(getattr(model.host, f.name)) for f in fields(HostTerms)}))
    sections.append(("valid", {f.name: getattr(model.valid, f.name) for f in fields(ValidRange)}))
    if model.memory is not None:
        memory = model.memory
        sections.append(("memory", {f.name: write_size(getattr(memory, f.name)) for f in fields(MemoryModel)}))
    if model.shape is not None:
        sections.append(("shape", {f.name: getattr(model.shape, f.name) for f in fields(ModelShape)}))
    return render(sections)


def _model(root: Section) -> DeviceModel:
    version = root.whole("format")
    if version != FORMAT:
        raise root.fail("format", f"version {version} is unknown; this build reads version {FORMAT}.")
    model = DeviceModel(
        device=root.value("device", str),
        model=root.value("model", str),
        tensor_parallel=root.whole("tensor_parallel", 1, least=1),
        provenance=_provenance(root.section("provenance")),
        step=_step(root.section("step")),
        host=_host(root.section("host")),
        valid=_valid(root.section("valid")),
        memory=_memory(root.section("memory")) if "memory" in root else None,
        shape=_shape(root.section("shape")) if "shape" in root else None,
    )
    root.done()
    return model


def _provenance(section: Section) -> Provenance:
    versions = section.section("versions") if "versions" in section else None
    errors = section.section("errors") if "errors" in section else None
    origin = Provenance(
        kind=section.value("kind", str),
        machine=section.value("machine", str, ""),
        date=section.value("date", str, ""),
        versions={name: versions.value(name, str) for name in versions} if versions else {},
        errors={name: errors.value(name, float) for name in errors} if errors else {},
        notes=section.texts("notes"),
    )
    section.done()
    return origin


def _step(section: Section) -> StepTerms:
    times = {f.name: _time(section, f.name) for f in fields(StepTerms) if f.name not in _TABLES}
    tables = {name: _table(section.section(name)) for name in _TABLES if name in section}
    section.done()
    return StepTerms(**times, **tables)  # type: ignore[arg-type]


def _host(section: Section) -> HostTerms:
    terms = HostTerms(**{f.name: _time(section, f.name) for f in fields(HostTerms)})
    section.done()
    return terms


def _table(section: Section) -> Table:
    table = Table(section.wholes("at"), tuple(read_time(text) for text in section.texts("time")))
    section.done()
    return table


def _valid(section: Section) -> ValidRange:
    valid = ValidRange(**{f.name: section.whole(f.name, least=1) for f in fields(ValidRange)})
    section.done()
    return valid


def _memory(section: Section) -> MemoryModel:
    sizes = {f.name: _size(section, f.name) for f in fields(MemoryModel)}
    section.done()
    return MemoryModel(**sizes)


def _shape(section: Section) -> ModelShape:
    shape = ModelShape(**{f.name: section.whole(f.name) for f in fields(ModelShape)})
    section.done()
    return shape


def _time(section: Section, key: str) -> int:
    try:
        return read_time(section.value(key, str, "0"))
    except DeviceModelError as error:
        raise section.fail(key, str(error)) from error


def _size(section: Section, key: str) -> int:
    try:
        return read_size(section.value(key, str, "0"))
    except DeviceModelError as error:
        raise section.fail(key, str(error)) from error
