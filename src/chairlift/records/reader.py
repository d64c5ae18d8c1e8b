"""Reads a run's folder, complete or cut off in the middle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chairlift.core.errors import RecordError
from chairlift.records.checks import numbered
from chairlift.records.manifest import Manifest
from chairlift.records.rows import KINDS, R, arrow_schema, from_row, to_row
from chairlift.records.schema import BatchRecord, DecisionRecord, RequestRecord, ShareRecord, StepRecord

if TYPE_CHECKING:
    import pyarrow as pa


class Run:
    """A run on disk.

    Args:
        folder: as RunWriter made it.

    Raises:
        RecordError: it is no run, or of a schema that this version does not know.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = Manifest.read(folder)

    @property
    def complete(self) -> bool:
        """Whether it was closed. One that was not lacks its end."""
        return self.manifest.status == "complete"

    def steps(self) -> list[StepRecord]:
        """In order of time. Raises RecordError on a damaged file, as the others do."""
        return self._read("steps", StepRecord)

    def shares(self) -> list[ShareRecord] | None:
        """In order of time. None: the run is of a version that did not record them."""
        if not any((self.folder / f"shares.{ending}").exists() for ending in ("jsonl", "parquet")):
            return None
        return self._read("shares", ShareRecord)

    def requests(self) -> list[RequestRecord]:
        """In the order in which they left."""
        return self._read("requests", RequestRecord)

    def decisions(self) -> list[DecisionRecord]:
        """In order of time."""
        return self._read("decisions", DecisionRecord)

    def batches(self) -> list[BatchRecord]:
        """In order of time."""
        return self._read("batches", BatchRecord)

    def table(self, name: str) -> pa.Table:
        """steps, shares, requests, decisions or batches as an Arrow table."""
        import pyarrow as pa  # noqa: PLC0415 - slow to load; who reads records only does without
        from pyarrow import parquet  # noqa: PLC0415

        path = self.folder / f"{name}.parquet"
        try:
            if self.complete and path.exists():
                return parquet.read_table(path)
            kind = KINDS[name]
            rows = [to_row(from_row(kind, row)) for row in lines_of(self.folder / f"{name}.jsonl")]
            return pa.Table.from_pylist(rows, arrow_schema(kind))
        except (OSError, pa.ArrowException) as error:
            raise RecordError(f"{path} cannot be read: {error}") from error

    def _read(self, name: str, kind: type[R]) -> list[R]:
        lines = self.folder / f"{name}.jsonl"
        if lines.exists():
            return list(numbered(lines, lines_of(lines), partial(from_row, kind)))
        rows = self.table(name).to_pylist()
        return list(numbered(lines.with_suffix(".parquet"), rows, partial(from_row, kind)))


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file of JSON lines. A last line without its end is passed over: the process was killed in it.

    Raises:
        RecordError: the file cannot be read, or a whole line is no JSON object.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith("\n"):
                    return
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise RecordError(f"line {number} of {path} is no JSON object.")
                yield row
    except ValueError as error:
        raise RecordError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error}") from error
