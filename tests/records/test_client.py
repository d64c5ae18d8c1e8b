from hypothesis import given
from hypothesis import strategies as st

from chairlift.records.client import Chunk, Chunks, ClientVerdict, ErrorClass, Evidence, RequestTrace, TokenSource


def evidence(value: float | None, *, decides: bool = True) -> Evidence:
    """Held to a limit of 10."""
    return Evidence("lag", value, 10, "ns", decides=decides, meaning="")


def test_a_request_without_an_error_has_a_whole_answer() -> None:
    """Any error class is none."""
    assert RequestTrace(0, 5, warmup=False, end=9).ok
    assert not any(RequestTrace(0, 5, warmup=False, end=9, error=error).ok for error in ErrorClass)


def test_the_send_lag_counts_from_the_schedule() -> None:
    """And there is none where nothing was sent."""
    assert RequestTrace(0, 5, warmup=False, end=9, sent=7).send_lag == 2
    assert RequestTrace(0, 5, warmup=False, end=9).send_lag is None


def test_a_limit_is_exceeded_above_it_and_never_by_what_is_unknown() -> None:
    """Exactly at the limit is within it."""
    assert [evidence(value).exceeded for value in (9, 10, 11, None)] == [False, False, True, False]


def test_reasons_are_the_numbers_that_decided() -> None:
    """Others may be above their limits and stand beside."""
    within, decided, beside = evidence(1), evidence(11), evidence(12, decides=False)

    assert ClientVerdict(bottleneck=True, evidence=(within, decided, beside)).reasons == (decided,)


chunks = st.lists(
    st.builds(
        Chunk,
        st.integers(min_value=0, max_value=2**62),
        st.none() | st.integers(min_value=0, max_value=2**40),
        st.sampled_from(TokenSource),
    ),
    max_size=8,
)


@given(chunks, chunks)
def test_chunks_are_a_sequence_of_what_was_added(some: list[Chunk], others: list[Chunk]) -> None:
    """By index, slice and iteration; equal when their chunks are."""
    columns = Chunks(some)

    assert list(columns) == some
    assert len(columns) == len(some)
    assert columns[1:3] == some[1:3]
    assert [columns[number - len(some)] for number in range(len(some))] == some
    assert list(zip(columns.times, columns.tokens, columns.sources, strict=True)) == some
    assert (columns == Chunks(others)) == (some == others)
    assert hash(columns) == hash(Chunks(some))


def test_one_each_keeps_the_times() -> None:
    """For answers whose total settles it."""
    assert list(Chunks([(3, None, TokenSource.UNKNOWN)]).one_each()) == [Chunk(3, 1, TokenSource.TOTAL)]
