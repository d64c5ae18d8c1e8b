import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import RecordError
from chairlift.lab.client.rows import KINDS, from_row, schemas, to_row
from chairlift.records.client import Chunk, Chunks, ErrorClass, HealthSample, RequestTrace, ServerSample, TokenSource

times = st.integers(min_value=0, max_value=2**62)
maybe_times = st.none() | times
counts = st.none() | st.integers(min_value=0, max_value=10**9)
shares = st.floats(min_value=0, max_value=64)
texts = st.text(max_size=10)

traces = st.builds(
    RequestTrace,
    index=st.integers(min_value=0),
    scheduled=times,
    warmup=st.booleans(),
    end=times,
    sent=maybe_times,
    written=maybe_times,
    first_byte=maybe_times,
    first_event=maybe_times,
    first_content=maybe_times,
    last_content=maybe_times,
    chunks=st.lists(st.builds(Chunk, times, counts, st.sampled_from(TokenSource)), max_size=4).map(Chunks),
    prompt_tokens=counts,
    cached_tokens=counts,
    output_tokens=counts,
    finish_reason=st.none() | texts,
    status=st.none() | st.integers(min_value=100, max_value=599),
    error=st.none() | st.sampled_from(ErrorClass),
    error_message=texts,
    retry_after=maybe_times,
    connection_reused=st.none() | st.booleans(),
    text=st.none() | texts,
    token_ids=st.none() | st.lists(st.integers(min_value=0, max_value=10**6), max_size=3).map(tuple),
)
health = st.builds(
    HealthSample,
    time=times,
    interval=times,
    loop_lags=st.lists(times, max_size=3).map(tuple),
    sent=st.integers(min_value=0, max_value=9),
    send_lag_max=times,
    in_flight=st.integers(min_value=0, max_value=9),
    chunks=st.integers(min_value=0, max_value=9),
    thread_cpu=shares,
    process_cpu=shares,
    pressure=st.none() | shares,
)
samples = st.builds(
    ServerSample,
    time=times,
    took=times,
    running=st.none() | shares,
    kv_usage=st.none() | shares,
    series=st.dictionaries(texts, shares, max_size=3),
    error=texts,
)


@given(st.one_of(traces, health, samples))
def test_a_row_survives_json(observation: RequestTrace | HealthSample | ServerSample) -> None:
    """What was written is what is read."""
    row = json.loads(json.dumps(to_row(observation)))
    kind = next(kind for kind in KINDS.values() if isinstance(observation, kind))

    assert from_row(kind, row) == observation


def test_a_newer_writers_columns_are_passed_over() -> None:
    """A new field alone does not raise the schema's version."""
    trace = RequestTrace(0, 1, warmup=False, end=2)

    assert from_row(RequestTrace, {**to_row(trace), "mood": "good"}) == trace


@pytest.mark.parametrize("change", [{"index": None}, {"error": "bad luck"}, {"chunk_times": [1]}])
def test_a_row_that_is_no_trace_is_refused(change: dict[str, object]) -> None:
    """Missing, unknown, or of unequal length."""
    row = {**to_row(RequestTrace(0, 1, warmup=False, end=2)), **change}
    if row["index"] is None:
        del row["index"]

    with pytest.raises(RecordError, match="a RequestTrace"):
        from_row(RequestTrace, row)


def test_every_kind_has_a_table() -> None:
    """And chunks have one of their own."""
    assert set(schemas()) == {*KINDS, "chunks"}
