from hypothesis import given
from hypothesis import strategies as st

from chairlift.lab.client.deltas import Delta
from chairlift.lab.client.health import Tally
from chairlift.lab.client.options import Answer
from chairlift.lab.client.stopwatch import Stopwatch
from chairlift.records.client import Chunk, ErrorClass, TokenSource


def watched(*deltas: Delta) -> Stopwatch:
    """The deltas at 10, 20, 30 ... ns."""
    watch = Stopwatch(3, 5, keep_text=True)
    for number, delta in enumerate(deltas, start=1):
        watch.event(delta, 10 * number)
    return watch


def word(**more: object) -> Delta:
    """Make a chunk with text."""
    return Delta(choices=True, content=True, text="a", **more)  # type: ignore[arg-type]


ROLE = Delta(choices=True)


def test_moments_are_those_of_the_events() -> None:
    """A role opens the stream, but only content is a chunk."""
    trace = watched(ROLE, word(), word(), Delta(prompt_tokens=7, cached_tokens=1, output_tokens=2)).trace(99)

    assert (trace.index, trace.scheduled, trace.end) == (3, 5, 99)
    assert (trace.first_event, trace.first_content, trace.last_content) == (10, 20, 30)
    assert (trace.prompt_tokens, trace.cached_tokens, trace.output_tokens) == (7, 1, 2)


def test_token_ids_count_a_chunk() -> None:
    """Two tokens in a chunk are two tokens; a chunk without ids of its own holds back text of earlier ones."""
    trace = watched(word(token_ids=(4, 5)), word(token_ids=()), word(token_ids=(6,))).trace(40)

    assert [(chunk.tokens, chunk.source) for chunk in trace.chunks] == [
        (2, TokenSource.TOKEN_IDS),
        (0, TokenSource.TOKEN_IDS),
        (1, TokenSource.TOKEN_IDS),
    ]
    assert trace.token_ids == (4, 5, 6)


def test_a_running_count_counts_a_chunk_by_its_difference() -> None:
    """As with vLLM's continuous_usage_stats, whose first chunk is a role with a count of 0."""
    role = Delta(choices=True, output_tokens=0)
    usage = Delta(prompt_tokens=3, output_tokens=4)

    trace = watched(role, word(output_tokens=1), word(output_tokens=4), usage).trace(50)

    assert list(trace.chunks) == [Chunk(20, 1, TokenSource.RUNNING_COUNT), Chunk(30, 3, TokenSource.RUNNING_COUNT)]


def test_a_counted_token_without_text_is_a_chunk() -> None:
    """Half a character, or the end of sequence: the token came then, though nothing can be seen."""
    silent = Delta(choices=True, output_tokens=2)

    trace = watched(word(output_tokens=1), silent).trace(50)

    assert [chunk.time for chunk in trace.chunks] == [10, 20]


def test_the_count_at_the_end_says_nothing_of_a_single_chunk() -> None:
    """A total that comes with the last chunk is no running count when chunks before had none."""
    last = word(output_tokens=9, finish_reason="length")

    trace = watched(word(), last).trace(50)

    assert [(chunk.tokens, chunk.source) for chunk in trace.chunks] == [(None, TokenSource.UNKNOWN)] * 2
    assert trace.output_tokens == 9


def test_a_whole_answer_in_one_event_has_its_tokens() -> None:
    """An answer that was not streamed."""
    trace = watched(word(output_tokens=9, finish_reason="length")).trace(50)

    assert list(trace.chunks) == [Chunk(10, 9, TokenSource.RUNNING_COUNT)]


def test_as_many_tokens_as_chunks_are_one_each() -> None:
    """Each chunk carried at least one, so the total at the end settles it."""
    trace = watched(word(), word(), word(), Delta(output_tokens=3)).trace(50)

    assert [(chunk.tokens, chunk.source) for chunk in trace.chunks] == [(1, TokenSource.TOTAL)] * 3


def test_more_tokens_than_chunks_stay_unknown() -> None:
    """Which chunk had the second token is not to be guessed."""
    trace = watched(word(), word(), word(), Delta(output_tokens=4)).trace(50)

    assert {(chunk.tokens, chunk.source) for chunk in trace.chunks} == {(None, TokenSource.UNKNOWN)}


def test_a_broken_answer_is_not_settled_by_its_total() -> None:
    """Where the end is missing, so are tokens."""
    watch = watched(word(), word(), Delta(output_tokens=2))
    watch.fail(ErrorClass.BROKEN_STREAM, "gone")

    assert watch.trace(50).chunks[0].source is TokenSource.UNKNOWN


def test_the_first_error_counts() -> None:
    """What came of it is no news."""
    watch = watched(Delta(error="out of memory"))
    watch.fail(ErrorClass.BROKEN_STREAM, "closed")

    trace = watch.trace(50)

    assert (trace.error, trace.error_message, trace.ok) == (ErrorClass.IN_STREAM, "out of memory", False)


def test_the_end_is_when_the_outcome_was_known() -> None:
    """Not when the request's task came round to saying so."""
    watch = watched(word())
    watch.ended = 12

    assert watch.trace(50).end == 12


def test_texts_are_kept_on_request_only() -> None:
    """An answer may be kept for the next turn and still not go into the record."""
    watch = watched(word(token_ids=(4,)), word(token_ids=(5,)))

    assert watch.answer() == Answer("aa", (4, 5))
    assert watch.trace(50).text == "aa"
    assert (watch.trace(50, keep_text=False).text, watch.trace(50, keep_text=False).token_ids) == (None, None)


def test_chunks_are_tallied_over_all_requests() -> None:
    """For the health samples."""
    tally = Tally()
    for index in range(2):
        Stopwatch(index, 0, tally=tally).event(word(), 1)

    assert tally.chunks == 2


@given(st.lists(st.integers(min_value=1, max_value=5), min_size=1, max_size=20), st.booleans())
def test_known_counts_add_up_to_the_total(counts: list[int], ids: bool) -> None:  # noqa: FBT001 - drawn
    """Whoever tells, the chunks' tokens are all the tokens there are."""
    deltas, total = [], 0
    for count in counts:
        total += count
        deltas.append(word(token_ids=tuple(range(count))) if ids else word(output_tokens=total))

    trace = watched(*deltas, Delta(output_tokens=total)).trace(1000)

    assert [chunk.tokens for chunk in trace.chunks] == counts
    assert trace.output_tokens == total
