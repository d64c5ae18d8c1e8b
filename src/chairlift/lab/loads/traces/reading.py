"""From a file to a trace: which format it is, record by record, and where it is wrong."""

from __future__ import annotations

import csv
import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.traces.formats import FORMATS, Format, Record
from chairlift.lab.loads.traces.trace import Trace, TraceBuilder


def read_trace(path: Path, trace_format: str = "auto") -> Trace:
    """Read a trace; what it holds is JSON lines if it begins with a brace, CSV with a header otherwise.

    Args:
        path: the file.
        trace_format: one of `FORMATS`, or auto: whose columns are all there.

    Raises:
        ConfigError: the file cannot be read, is of no known format, or a line is wrong (with its number).
    """
    builder = TraceBuilder()
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        with path.open(encoding="utf-8-sig", newline="") as text:
            name, spec = trace_format, None
            for line, record in _records(text, path):
                if spec is None:
                    name, spec = _recognised(record, trace_format, path)
                builder.add(_row(spec, record, f"{path}, line {line}"))
    except OSError as error:
        raise ConfigError(f"the trace {path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the trace {path} is no text: {error}.") from error
    if spec is None or not builder.rows:
        skipped = "".join(f" ({count} rows left out: {reason})" for reason, count in builder.left_out.items())
        raise ConfigError(f"the trace {path} has no request in it{skipped}.")
    return builder.build(name=path.name, trace_format=name, sha256=sha256, block_tokens=spec.block_tokens)


def _records(text: Iterable[str], path: Path) -> Iterator[tuple[int, Record]]:
    """Line number and record. Lines that are blank or begin with # are passed over."""
    kept = ((line, content) for line, content in enumerate(text, 1) if content.strip() and not content.startswith("#"))
    first = next(kept, None)
    if first is None:
        return
    if first[1].lstrip().startswith("{"):
        yield first[0], _json(first[1], f"{path}, line {first[0]}")
        for line, content in kept:
            yield line, _json(content, f"{path}, line {line}")
        return
    header = [column.strip() for column in next(csv.reader([first[1]]))]
    lines: list[int] = []
    for cells in csv.reader(_noted(kept, lines)):
        if len(cells) != len(header):
            where = f"{path}, line {lines[-1]}"
            raise ConfigError(f"{where}: {len(cells)} columns, where the header has {len(header)}.")
        yield lines[-1], dict(zip(header, cells, strict=True))


def _noted(kept: Iterable[tuple[int, str]], lines: list[int]) -> Iterator[str]:
    """The contents; the last line's number stays in `lines`."""
    for line, content in kept:
        lines[:] = [line]
        yield content


def _json(content: str, where: str) -> Record:
    try:
        record: Any = json.loads(content, parse_float=Decimal)
    except ValueError as error:
        raise ConfigError(f"{where}: no JSON ({error}).") from error
    if not isinstance(record, dict):
        raise ConfigError(f"{where}: {content.strip()[:60]} is no JSON object.")
    return record


def _recognised(record: Record, wanted: str, path: Path) -> tuple[str, Format]:
    there = ", ".join(record)
    if wanted != "auto":
        missing = sorted(FORMATS[wanted].columns - record.keys())
        if missing:
            raise ConfigError(f"the trace {path} is no {wanted}: it has no {missing[0]!r}; its columns are {there}.")
        return wanted, FORMATS[wanted]
    for name, spec in FORMATS.items():
        if spec.columns <= record.keys():
            return name, spec
    known = "; ".join(f"{name}: {', '.join(sorted(spec.columns))}" for name, spec in FORMATS.items())
    raise ConfigError(f"the trace {path} is of no known format. Its columns are {there}. Known are: {known}.")


def _row(spec: Format, record: Record, where: str) -> Any:
    if spec.optional is not None:
        known = spec.columns | spec.optional
        for column in record.keys() - known:
            near = difflib.get_close_matches(column, known, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}."
            raise ConfigError(f"{where}: the column {column!r} is unknown; {meant}")
    try:
        return spec.row(record)
    except KeyError as error:
        raise ConfigError(f"{where}: {error.args[0]!r} is missing.") from error
    except ValueError as error:
        raise ConfigError(f"{where}: {error}.") from error
