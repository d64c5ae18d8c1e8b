"""Writes a run's folder as the run goes.

manifest.json       see Manifest
steps.jsonl         a line for each record, in the hands of the system once its step is over: a process that is
shares.jsonl        killed leaves everything but at most its last line
requests.jsonl
decisions.jsonl
batches.jsonl
steps.parquet ...   the same as columns, made from the lines when the run is closed
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from chairlift.core.errors import RecordError
from chairlift.records.manifest import MANIFEST, Manifest
from chairlift.records.observer import Observer
from chairlift.records.reader import lines_of
from chairlift.records.rows import KINDS, arrow_schema, from_row, to_row
from chairlift.records.schema import BatchRecord, DecisionRecord, Record, RequestRecord, ShareRecord, StepRecord

_encode = json.JSONEncoder(separators=(",", ":")).encode
"""ASCII: whatever a text holds, a line is one line."""
_CHUNK = 65_536
"""Rows turned into columns at a time."""


class RunWriter(Observer):
    """Attach it to an engine (or feed it), and close it at the end.

    Args:
        folder: made if it is not there; must not hold another run.
        manifest: what the run is.
        parquet: write columns at close.

    Raises:
        RecordError: the folder holds a run already, or cannot be written.
    """

    def __init__(self, folder: Path, manifest: Manifest, *, parquet: bool = True) -> None:
        self.folder = folder
        self._manifest = manifest
        self._parquet = parquet
        if (folder / MANIFEST).exists():
            raise RecordError(f"{folder} holds a run already: give another folder, or remove it.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._files: dict[type[Record], IO[str]] = {
                kind: (folder / f"{name}.jsonl").open("w", encoding="utf-8") for name, kind in KINDS.items()
            }
        except OSError as error:
            raise RecordError(f"{folder} cannot be written: {error}") from error
        self._dirty: set[IO[str]] = set()
        manifest.write(folder)

    def on_step(self, record: StepRecord) -> None:
        self._write(record)
        self._flush()

    def on_share(self, record: ShareRecord) -> None:
        self._write(record)  # goes with its step

    def on_request(self, record: RequestRecord) -> None:
        self._write(record)
        self._flush()

    def on_decision(self, record: DecisionRecord) -> None:
        self._write(record)  # many; they go with the step they belong to

    def on_batch(self, record: BatchRecord) -> None:
        self._write(record)
        self._flush()

    def close(self, results: Mapping[str, Any] | None = None, load: Mapping[str, Any] | None = None) -> None:
        """End the run: columns, then the manifest says complete. Closing again does nothing.

        Args:
            results: for the manifest.
            load: for the manifest, where it was not known at the start.

        Raises:
            RecordError: a file cannot be written.
        """
        if not self._files:
            return
        try:
            for file in self._files.values():
                file.close()
        except OSError as error:
            raise RecordError(f"the records in {self.folder} are not complete: {error}") from error
        finally:
            self._files = {}
        if self._parquet:
            for name in KINDS:
                write_columns(self.folder, name)
        replaced = replace(self._manifest, status="complete", results=results or {})
        (replaced if load is None else replace(replaced, load=load)).write(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, record: Record) -> None:
        file = self._files.get(type(record))
        if file is None:
            raise RecordError(f"{self.folder} is closed; a {type(record).__name__} came after its end.")
        file.write(_encode(to_row(record)) + "\n")
        self._dirty.add(file)

    def _flush(self) -> None:
        for file in self._dirty:
            file.flush()
        self._dirty.clear()


def write_columns(folder: Path, name: str) -> None:
    """Make NAME.parquet from NAME.jsonl.

    Raises:
        RecordError: the lines are damaged, or the file cannot be written.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to load, and needed once
    from pyarrow import parquet  # noqa: PLC0415

    kind = KINDS[name]
    schema = arrow_schema(kind)
    try:
        with parquet.ParquetWriter(folder / f"{name}.parquet", schema, compression="zstd") as out:
            rows: list[dict[str, Any]] = []
            for row in lines_of(folder / f"{name}.jsonl"):
                rows.append(to_row(from_row(kind, row)))
                if len(rows) == _CHUNK:
                    out.write_table(pa.Table.from_pylist(rows, schema))
                    rows.clear()
            out.write_table(pa.Table.from_pylist(rows, schema))
    except (OSError, pa.ArrowException) as error:
        raise RecordError(f"{folder / name}.parquet cannot be written: {error}") from error
