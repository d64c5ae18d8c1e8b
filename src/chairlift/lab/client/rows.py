"""What a client saw as plain rows: to JSON and back, and as the columns of tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from chairlift.core.errors import RecordError
from chairlift.records.checks import check_row
from chairlift.records.client import (
    Chunks,
    DeviceSample,
    ErrorClass,
    HealthSample,
    Observation,
    RequestTrace,
    ServerSample,
    TokenSource,
)

if TYPE_CHECKING:
    import pyarrow as pa

Seen = TypeVar("Seen", bound=Observation)

KINDS: Final[Mapping[str, type[Observation]]] = {
    "traces": RequestTrace,
    "health": HealthSample,
    "samples": ServerSample,
    "devices": DeviceSample,
}
"""Each kind's name, which is also its file's."""

_COLUMNS: Final[Mapping[type[object], tuple[str, ...]]] = {
    kind: tuple(
        field.name for field in dataclasses.fields(kind) if not (kind is RequestTrace and field.name == "chunks")
    )
    for kind in KINDS.values()
}
"""Fields that are columns as they are."""


def to_row(observation: Observation) -> dict[str, Any]:
    """An observation as a mapping that JSON can hold. A trace's chunks are three columns, each as long as the other."""
    row: dict[str, Any] = {name: getattr(observation, name) for name in _COLUMNS[type(observation)]}
    if isinstance(observation, RequestTrace):
        chunks = observation.chunks
        row |= {"chunk_times": list(chunks.times), "chunk_tokens": chunks.tokens, "chunk_sources": chunks.sources}
    if isinstance(observation, ServerSample):
        row["series"] = dict(observation.series)
    return row


def from_row(kind: type[Seen], row: Mapping[str, Any]) -> Seen:
    """The observation a row was made from. Columns that are not known here are passed over.

    Raises:
        RecordError: a column without a default is missing, or has a value that cannot be.
    """
    known = {name: row[name] for name in _COLUMNS[kind] if name in row}
    known = {
        name: tuple(value) if isinstance(value, list) and name != "series" else value for name, value in known.items()
    }
    try:
        if kind is RequestTrace:
            known["error"] = None if row.get("error") is None else ErrorClass(row["error"])
            known["chunks"] = Chunks(
                (time, tokens, TokenSource(source))
                for time, tokens, source in zip(
                    row["chunk_times"], row["chunk_tokens"], row["chunk_sources"], strict=True
                )
            )
        if kind is ServerSample:
            known["series"] = dict(row.get("series") or {})
    except KeyError as error:
        raise RecordError(f"a {kind.__name__} has no {error.args[0]}.") from error
    except (TypeError, ValueError) as error:
        raise RecordError(f"a {kind.__name__} cannot be made of its row: {error}") from error
    check_row(kind, known)
    return kind(**known)


def schemas() -> dict[str, pa.Schema]:
    """The tables of a closed run: traces, chunks (by `index` of their trace), health, samples, devices."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load; a run that is only written as JSON does without

    int64, text, real, flag = pa.int64(), pa.string(), pa.float64(), pa.bool_()
    types = {"int": int64, "str": text, "float": real, "bool": flag, "Nanoseconds": int64, "ErrorClass": text}
    lists = {
        "loop_lags": pa.list_(int64),
        "token_ids": pa.list_(int64),
        "series": pa.map_(text, real),
    }
    tables = {}
    for name, kind in KINDS.items():
        hints = {field.name: str(field.type).removesuffix(" | None") for field in dataclasses.fields(kind)}
        tables[name] = pa.schema(
            [pa.field(column, lists.get(column) or types[hints[column]]) for column in _COLUMNS[kind]]
        )
    tables["chunks"] = pa.schema([("index", int64), ("time", int64), ("tokens", int64), ("source", text)])
    return tables


def chunk_rows(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of the table of chunks that a trace's row has."""
    columns = zip(row["chunk_times"], row["chunk_tokens"], row["chunk_sources"], strict=True)
    for time, tokens, source in columns:
        yield {"index": row["index"], "time": time, "tokens": tokens, "source": source}
