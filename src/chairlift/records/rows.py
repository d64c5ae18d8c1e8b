"""Records as plain rows: to JSON and back, and as the columns of a table."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from chairlift.core.errors import RecordError
from chairlift.core.request import FinishReason
from chairlift.records.checks import check_row
from chairlift.records.gaps import GapRun
from chairlift.records.schema import BatchRecord, DecisionRecord, Record, RequestRecord, ShareRecord, StepRecord

if TYPE_CHECKING:
    import pyarrow as pa

R = TypeVar("R", bound=Record)

KINDS: Mapping[str, type[Record]] = {
    "steps": StepRecord,
    "shares": ShareRecord,
    "requests": RequestRecord,
    "decisions": DecisionRecord,
    "batches": BatchRecord,
}
"""Each kind's name, which is also its file's."""


_NAMES: Mapping[type[object], tuple[str, ...]] = {
    kind: tuple(field.name for field in dataclasses.fields(kind)) for kind in KINDS.values()
}
_VALUES: Mapping[type[object], attrgetter[Any]] = {kind: attrgetter(*names) for kind, names in _NAMES.items()}


def field_names(kind: type[object]) -> tuple[str, ...]:
    """Columns of a kind of record, in the order of its file."""
    return _NAMES[kind]


def to_row(record: Record) -> dict[str, Any]:
    """A record as a flat mapping that JSON can hold."""
    kind = type(record)
    return dict(zip(_NAMES[kind], _VALUES[kind](record), strict=True))


def from_row(kind: type[R], row: Mapping[str, Any]) -> R:
    """The record a row was made from. Columns that are not known here are passed over: a newer writer may have more.

    Raises:
        RecordError: a column without a default is missing, or has a value that cannot be.
    """
    known = {name: row[name] for name in field_names(kind) if name in row}
    try:
        _as_fields(known)
    except (TypeError, ValueError) as error:
        raise RecordError(f"a {kind.__name__} cannot be made of its row: {error}") from error
    check_row(kind, known)
    return kind(**known)


def _as_fields(known: dict[str, Any]) -> None:
    """From what a file holds to what fields hold, in place."""
    for name, value in known.items():
        if name == "finish_reason":
            known[name] = FinishReason(value)
        elif name == "gap_runs":
            known[name] = tuple(GapRun(*run) for run in value)
        elif isinstance(value, list):
            # Arrow has no mapping from names to numbers but a list of pairs.
            known[name] = dict(value) if value and isinstance(value[0], tuple) else tuple(value)
    if "numbers" in known:
        known["numbers"] = dict(known["numbers"])


def arrow_schema(kind: type[Record]) -> pa.Schema:
    """The columns of a kind of record as Parquet holds them."""
    import pyarrow as pa  # noqa: PLC0415 - a run that is only written as JSON does without

    hints = get_type_hints(kind)
    return pa.schema([pa.field(name, _arrow_type(hints[name])) for name in field_names(kind)])


def _arrow_type(hint: Any) -> pa.DataType:
    import pyarrow as pa  # noqa: PLC0415

    if hint is GapRun:
        return pa.list_(pa.int64())
    if get_origin(hint) in {types.UnionType, tuple}:
        inner = next(option for option in get_args(hint) if option not in {types.NoneType, Ellipsis})
        return pa.list_(_arrow_type(inner)) if get_origin(hint) is tuple else _arrow_type(inner)
    if get_origin(hint) is not None:
        return pa.map_(pa.string(), pa.int64())
    return {int: pa.int64(), bool: pa.bool_(), str: pa.string(), FinishReason: pa.string()}[hint]
