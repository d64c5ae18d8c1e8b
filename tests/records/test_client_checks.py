import re
from dataclasses import replace

import pytest
from hypothesis import given

from chairlift.records.client import Chunk, Chunks, ErrorClass, RequestTrace, TokenSource
from chairlift.records.client_checks import check, impossible
from tests.records.traces import MS, failed, runs, trace


@given(runs)
def test_what_can_be_is_not_refused(drawn: list[RequestTrace]) -> None:
    """And comes in the order of the schedule, whatever the order of the ends."""
    checked = check(reversed(drawn))

    assert checked.refused == ()
    assert list(checked.traces) == drawn


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sent": -1 * MS}, "sent .* before scheduled"),
        ({"sent": 31 * MS}, "first_event .* before sent"),
        ({"sent": 30 * MS}, "took no time"),
        ({"sent": None}, "never sent"),
        ({"written": 40 * MS}, "first_event .* before written"),
        ({"first_event": 31 * MS}, "first_content .* before first_event"),
        ({"last_content": 29 * MS}, "last_content .* before first_content"),
        ({"last_content": 53 * MS}, "its chunks are from"),
        ({"end": 53 * MS}, "end .* before last_content"),
        ({"prompt_tokens": -1}, "prompt_tokens is -1"),
        ({"output_tokens": 2}, "chunks have 3 tokens, the target says that it generated 2"),
        ({"output_tokens": 0}, "chunks have 3 tokens"),
    ],
)
def test_what_cannot_be_is_refused_with_its_numbers(fields: dict[str, int | None], said: str) -> None:
    """Moments out of order, negative counts, a first token in no time: none becomes a figure."""
    wrong = replace(trace(), **fields)  # type: ignore[arg-type]
    checked = check([wrong, trace(1)])

    why = impossible(wrong)
    assert why is not None
    assert re.search(said, why)
    assert [one.index for one in checked.refused] == [0]
    assert [one.index for one in checked.traces] == [1]


def test_chunks_go_forward_and_have_no_negative_tokens() -> None:
    """Each is looked at, not only the ends."""
    ids = TokenSource.TOKEN_IDS
    back = (Chunk(30 * MS, 1, ids), Chunk(60 * MS, 1, ids), Chunk(54 * MS, 1, ids))
    minus = (Chunk(30 * MS, 1, ids), Chunk(40 * MS, -2, ids), Chunk(54 * MS, 1, ids))

    assert "is before the one before it" in (impossible(replace(trace(), chunks=Chunks(back))) or "")
    assert impossible(replace(trace(), chunks=Chunks(minus))) == "a chunk has -2 tokens"
    assert "generated no token" in (impossible(trace(chunks=[(30, None)], output_tokens=0)) or "")


def test_a_request_that_came_to_nothing_can_be() -> None:
    """Never sent, cut, or refused: there is nothing wrong with the trace."""
    assert impossible(failed(0, 5, 9)) is None
    assert impossible(replace(failed(0, 5, 9, ErrorClass.UNSENT), sent=None)) is None


def test_each_request_counts_once() -> None:
    """A second trace with the same index is refused."""
    checked = check([trace(3), trace(3)])

    assert len(checked.traces) == 1
    assert [(one.index, one.why) for one in checked.refused] == [(3, "there is another trace of this request")]
