import math

import pytest
from hypothesis import given

from chairlift.records.client import ErrorClass, RequestTrace
from chairlift.records.client_metrics import (
    CLIENT_METRICS,
    END_TO_END_FROM_SCHEDULE,
    END_TO_END_FROM_SEND,
    PERCENTS,
    SEND_LAG,
    TIME_BETWEEN_TOKENS,
    TIME_PER_OUTPUT_TOKEN,
    TTFT_FROM_SCHEDULE,
    TTFT_FROM_SEND,
    output_tokens,
    token_gaps,
)
from chairlift.records.metrics import NOT_OBSERVABLE, Metric, distribution
from tests.records.traces import MS, failed, runs, sound, trace

LATE = trace(due=0, sent=20, end=60)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (TTFT_FROM_SCHEDULE, [30]),
        (TTFT_FROM_SEND, [10]),
        (TIME_BETWEEN_TOKENS, [10, 14]),
        (TIME_PER_OUTPUT_TOKEN, [12]),
        (END_TO_END_FROM_SCHEDULE, [60]),
        (END_TO_END_FROM_SEND, [40]),
        (SEND_LAG, [20]),
    ],
    ids=lambda value: value.name if isinstance(value, Metric) else None,
)
def test_each_metric_runs_from_its_start_to_its_stop(metric: Metric[RequestTrace], expected: list[int]) -> None:
    """By hand: due at 0, sent at 20, tokens at 30, 40 and 54, over at 60."""
    values = metric.values(LATE)

    assert values is not None
    assert [value / MS for value in values] == expected


def test_a_late_client_counts_against_the_result() -> None:
    """A semaphore in the client (vllm 54101) moves the send, not the schedule: the first figure shows the wait."""
    prompt, waited = trace(due=0, sent=0), trace(due=0, sent=25)

    assert TTFT_FROM_SCHEDULE.values(prompt) == TTFT_FROM_SCHEDULE.values(waited) == (30 * MS,)
    assert TTFT_FROM_SEND.values(waited) == (5 * MS,)


@pytest.mark.parametrize("metric", [one for one in CLIENT_METRICS if one is not SEND_LAG], ids=lambda one: one.name)
def test_who_has_no_whole_answer_is_in_no_latency(metric: Metric[RequestTrace]) -> None:
    """Even where it had tokens before it broke."""
    assert metric.values(trace(error=ErrorClass.BROKEN_STREAM)) == ()


def test_a_chunk_of_several_tokens_is_not_one_gap() -> None:
    """12 ms before a chunk of three are three times 4 ms; a chunk without tokens brings none."""
    gaps = token_gaps(trace(chunks=[(30, 2), (42, 3), (50, 0), (60, 1)]))

    assert gaps is not None
    assert [gap / MS for gap in gaps] == [4, 4, 4, 18]


def test_chunks_that_were_read_in_one_go_are_one() -> None:
    """A client that comes late finds several: no gap is zero, and the wait before them is spread over them."""
    gaps = token_gaps(trace(chunks=[(30, 1), (42, 1), (42, 1), (42, 1), (50, 1)]))

    assert gaps is not None
    assert [gap / MS for gap in gaps] == [4, 4, 4, 8]
    assert token_gaps(trace(chunks=[(30, 1), (30, 1), (30, 1)])) is None


@pytest.mark.parametrize(
    ("chunks", "usage"),
    [
        ([(30, 1), (40, None), (50, 1)], 7),
        ([(30, 1), (40, None)], None),
        ([(30, 5)], 5),
        ([(30, 1), (30.01, 1), (30.02, 1)], 3),
        ([(30, 1), (40, 1)], 4),
    ],
    ids=["unknown, total told", "unknown", "one chunk", "held back", "tokens missing"],
)
def test_what_nobody_could_see_is_not_observable(chunks: list[tuple[int, int | None]], usage: int | None) -> None:
    """Not zero, not guessed from the number of chunks: the request is counted beside the figures."""
    unseen = trace(chunks=chunks, output_tokens=usage)
    measured = distribution(TIME_BETWEEN_TOKENS, [unseen])

    assert token_gaps(unseen) is None
    assert (measured.count, measured.unobservable, measured.mean, str(measured)) == (0, 1, None, NOT_OBSERVABLE)
    assert TIME_PER_OUTPUT_TOKEN.values(unseen) is None


@pytest.mark.parametrize(
    ("chunks", "usage"), [([(30, 1)], 1), ([(30, 1)], 2), ([(30, None)], 1), ([(30, 1)], None), ([], 0)]
)
def test_an_answer_of_one_token_has_no_gap(chunks: list[tuple[int, int | None]], usage: int | None) -> None:
    """It is not of the population; the token that ends a sequence has no text and no moment."""
    assert token_gaps(trace(chunks=chunks, output_tokens=usage)) == ()


def test_output_tokens_are_the_targets_own_count() -> None:
    """Usage before chunks, chunks where there is none, and nothing is guessed where neither tells."""
    assert output_tokens(trace(output_tokens=4)) == 4
    assert output_tokens(trace(output_tokens=None)) == 3
    assert output_tokens(trace(chunks=[(30, None)], output_tokens=None)) is None
    assert output_tokens(failed(0, 0, 5)) is None


@given(sound())
def test_gaps_add_up_to_the_time_from_the_first_chunk_to_the_last(drawn: RequestTrace) -> None:
    """However tokens are spread over chunks, and there is one gap for each token after the first chunk."""
    gaps = token_gaps(drawn)

    first, *rest = [chunk.tokens or 0 for chunk in drawn.chunks]
    if gaps is None:
        assert not rest
        assert first > 1
    else:
        assert len(gaps) == sum(rest)
        assert math.isclose(sum(gaps), drawn.chunks[-1].time - drawn.chunks[0].time, abs_tol=1)


@given(runs)
def test_from_schedule_is_never_less_than_from_send(drawn: list[RequestTrace]) -> None:
    """The difference is the client's lateness, request by request."""
    schedule = distribution(TTFT_FROM_SCHEDULE, drawn, PERCENTS)
    send = distribution(TTFT_FROM_SEND, drawn, PERCENTS)
    lag = distribution(SEND_LAG, drawn, PERCENTS)

    assert schedule.mean is not None
    assert send.mean is not None
    assert lag.mean is not None
    assert schedule.mean == pytest.approx(send.mean + lag.mean)
    assert set(schedule.percentiles) == {50, 90, 95, 99, 99.9}
    told = [schedule.percentiles[percent] for percent in PERCENTS]
    assert told == sorted(told)
    assert schedule.maximum is not None
    assert told[-1] <= schedule.maximum


def test_every_metric_says_what_it_is() -> None:
    """No two share a name, and none leaves out where its clock starts and stops and whom it is about."""
    assert len({metric.name for metric in CLIENT_METRICS}) == len(CLIENT_METRICS)
    assert all(all((one.unit, one.starts, one.stops, one.population)) for one in CLIENT_METRICS)
