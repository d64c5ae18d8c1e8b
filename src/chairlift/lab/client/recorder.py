"""Writes what a client saw into a run's folder as it happens, and reads it back.

traces.jsonl        a line for each request as it ends, in the hands of the system at once: a process that is killed
health.jsonl        leaves everything but at most its last line
samples.jsonl
devices.jsonl
traces.parquet      the same as columns, made from the lines when the run is closed; chunks have a table of their own,
chunks.parquet      joined to traces by `index`
health.parquet
samples.parquet
devices.parquet
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final, Self

from chairlift.core.errors import RecordError
from chairlift.lab.client.rows import KINDS, Seen, chunk_rows, from_row, schemas, to_row
from chairlift.records.checks import numbered
from chairlift.records.client import DeviceSample, HealthSample, Observation, RequestTrace, ServerSample
from chairlift.records.reader import lines_of

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS: Final = 4096
"""Lines turned into columns at a time."""

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class ClientRecorder:
    """Takes the observations of one run.

    Args:
        folder: made if it is not there; must not hold a client's records.

    Raises:
        RecordError: it does, or cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if (folder / "traces.jsonl").exists():
            raise RecordError(f"{folder} holds a client's records already: give another folder, or remove it.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._files: dict[type[Observation], IO[str]] = {
                kind: (folder / f"{name}.jsonl").open("w", encoding="utf-8") for name, kind in KINDS.items()
            }
        except OSError as error:
            raise RecordError(f"{folder} cannot be written: {error}") from error

    def write(self, observation: Observation) -> None:
        """Write one observation down.

        Raises:
            RecordError: the recorder is closed, or the disk is full.
        """
        file = self._files.get(type(observation))
        if file is None:
            raise RecordError(f"{self.folder} is closed; a {type(observation).__name__} came after its end.")
        try:
            file.write(_encode(to_row(observation)) + "\n")
            file.flush()
        except OSError as error:
            raise RecordError(f"{self.folder} cannot be written: {error}") from error

    def close(self, *, parquet: bool = True) -> None:
        """End: lines become columns. Closing again does nothing.

        Raises:
            RecordError: a file cannot be written.
        """
        if not self._files:
            return
        files, self._files = self._files, {}
        for file in files.values():
            file.close()
        if parquet:
            write_columns(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def write_columns(folder: Path) -> None:
    """Make the Parquet files from the lines.

    Raises:
        RecordError: the lines are damaged, or a file cannot be written.
    """
    tables = schemas()
    _write_table(folder / "traces.parquet", tables["traces"], map(to_row, read_traces(folder)))
    _write_table(folder / "health.parquet", tables["health"], map(to_row, read_health(folder)))
    _write_table(folder / "samples.parquet", tables["samples"], map(to_row, read_samples(folder)))
    _write_table(folder / "devices.parquet", tables["devices"], map(to_row, read_devices(folder)))
    chunks = (chunk for row in lines_of(folder / "traces.jsonl") for chunk in chunk_rows(row))
    _write_table(folder / "chunks.parquet", tables["chunks"], chunks)


def read_traces(folder: Path) -> list[RequestTrace]:
    """In the order in which the requests ended. Raises RecordError on a damaged file, as the others do."""
    return _read(folder, "traces", RequestTrace)


def read_health(folder: Path) -> list[HealthSample]:
    """In order of time."""
    return _read(folder, "health", HealthSample)


def read_samples(folder: Path) -> list[ServerSample]:
    """In order of time."""
    return _read(folder, "samples", ServerSample)


def read_devices(folder: Path) -> list[DeviceSample]:
    """In order of time; empty in a run that was kept before there were any."""
    kept = any((folder / f"devices.{suffix}").exists() for suffix in ("jsonl", "parquet"))
    return _read(folder, "devices", DeviceSample) if kept else []


def _read(folder: Path, name: str, kind: type[Seen]) -> list[Seen]:
    lines = folder / f"{name}.jsonl"
    rows = lines_of(lines) if lines.exists() else _rows_of_table(folder, name)
    path = lines if lines.exists() else lines.with_suffix(".parquet")
    return list(numbered(path, rows, partial(from_row, kind)))


def _rows_of_table(folder: Path, name: str) -> Iterator[Mapping[str, Any]]:
    from pyarrow import ArrowException, parquet  # noqa: PLC0415 - slow to load, and mostly there are lines

    try:
        rows = parquet.read_table(folder / f"{name}.parquet").to_pylist()
        chunks = parquet.read_table(folder / "chunks.parquet").to_pylist() if name == "traces" else []
    except (OSError, ArrowException) as error:
        raise RecordError(f"{folder / name}.parquet cannot be read: {error}") from error
    columns: dict[int, dict[str, list[Any]]] = {
        row["index"]: {"chunk_times": [], "chunk_tokens": [], "chunk_sources": []} for row in rows if name == "traces"
    }
    for chunk in chunks:
        own = columns[chunk["index"]]
        own["chunk_times"].append(chunk["time"])
        own["chunk_tokens"].append(chunk["tokens"])
        own["chunk_sources"].append(chunk["source"])
    for row in rows:
        yield {**row, **columns.get(row.get("index", -1), {})}


def _write_table(path: Path, schema: pa.Schema, rows: Iterable[dict[str, Any]]) -> None:
    import pyarrow as pa  # noqa: PLC0415 - slow to load, and needed once
    from pyarrow import parquet  # noqa: PLC0415

    rows = iter(rows)
    try:
        with parquet.ParquetWriter(path, schema, compression="zstd") as out:
            while some := list(islice(rows, _ROWS)):
                known = [{name: row[name] for name in schema.names} for row in some]
                out.write_table(pa.Table.from_pylist(known, schema))
    except (OSError, pa.ArrowException) as error:
        raise RecordError(f"{path} cannot be written: {error}") from error
