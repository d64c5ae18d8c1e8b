"""Whether a row's values are of the kinds that its record's fields have: whoever reads records relies on it."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints

from chairlift.core.errors import RecordError

_WHOLE: Final = range(-(2**63), 2**63)
"""What a column of Parquet holds."""


def check_row(kind: Any, values: Mapping[str, Any]) -> None:
    """Raises RecordError where a field without a default is missing, or a value is of another kind than its field.

    Args:
        kind: of record, a dataclass.
        values: by field, lists as tuples; others are passed over.
    """
    for name, (allowed, needed) in _fields(kind).items():
        if name not in values:
            if needed:
                raise RecordError(f"a {kind.__name__} has no {name}.")
            continue
        value = values[name]
        whole = type(value) is not int or value in _WHOLE
        if type(value) not in allowed or not whole or (type(value) is tuple and None in value):
            raise RecordError(f"{name} of a {kind.__name__} is {value!r:.60}, which cannot be.")


def numbered(path: Path, rows: Iterable[Mapping[str, Any]], make: Any) -> Iterator[Any]:
    """make(row) of each row of a file; an error names the file and the row.

    Raises:
        RecordError: as make does.
    """
    for number, row in enumerate(rows, start=1):
        try:
            yield make(row)
        except RecordError as error:
            raise RecordError(f"{path} is damaged: row {number}: {error}") from error


@cache
def _fields(kind: Any) -> Mapping[str, tuple[frozenset[type], bool]]:
    """By field: the types that its values may have, and whether it must be there."""
    hints = get_type_hints(kind)
    return {
        one.name: (
            frozenset(_types(hints[one.name])),
            one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING,
        )
        for one in dataclasses.fields(kind)
    }


def _types(hint: Any) -> Iterator[type]:
    origin = get_origin(hint)
    if origin is types.UnionType:
        for option in get_args(hint):
            yield from _types(option)
    elif origin is not None:
        yield dict if issubclass(origin, Mapping) else origin
    else:
        yield hint
        if hint is float:
            yield int
