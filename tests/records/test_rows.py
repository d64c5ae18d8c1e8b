import json

import pyarrow as pa
import pytest
from hypothesis import given

from chairlift.core.errors import RecordError
from chairlift.records.rows import KINDS, arrow_schema, field_names, from_row, to_row
from chairlift.records.schema import Record, RequestRecord, StepRecord
from tests.records.samples import records, request


@given(records)
def test_a_record_survives_json(record: Record) -> None:
    """A row written as JSON and read back is the same record, whatever its texts."""
    assert from_row(type(record), json.loads(json.dumps(to_row(record)))) == record


@given(records)
def test_a_record_survives_columns(record: Record) -> None:
    """A row put into an Arrow table and taken out is the same record."""
    kind = type(record)
    table = pa.Table.from_pylist([to_row(record)], arrow_schema(kind))

    assert from_row(kind, table.to_pylist()[0]) == record


@pytest.mark.parametrize("name", sorted(KINDS))
def test_columns_are_the_fields(name: str) -> None:
    """Every field is a column of a fitting type, in order."""
    schema = arrow_schema(KINDS[name])

    assert tuple(schema.names) == field_names(KINDS[name])
    types = {"int64", "string", "bool", "list<item: int64>", "list<item: list<item: int64>>", "map<string, int64>"}
    assert {str(one.type) for one in schema} <= types


def test_a_newer_writers_columns_are_passed_over() -> None:
    """What is not known here does not keep a record from being read."""
    assert from_row(RequestRecord, {**to_row(request()), "mood": "good"}) == request()


def test_a_missing_column_is_named() -> None:
    """A column that cannot be done without is missed with words."""
    with pytest.raises(RecordError, match="a StepRecord has no repeats"):
        from_row(StepRecord, {"step": 1})


def test_an_older_writers_missing_columns_get_their_defaults() -> None:
    """A field that was added with a default may be absent."""
    row = to_row(request())
    del row["token_gaps"], row["error"]

    assert from_row(RequestRecord, row).token_gaps == ()
