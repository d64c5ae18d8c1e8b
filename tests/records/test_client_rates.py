from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ConfigError
from chairlift.records.client import ErrorClass, RequestTrace
from chairlift.records.client_metrics import TTFT_FROM_SCHEDULE
from chairlift.records.client_rates import (
    Limits,
    goodput,
    meets,
    output_tokens_per_second,
    requests_per_second,
    total_tokens_per_second,
)
from tests.records.traces import MS, failed, runs, trace


def test_rates_count_whole_answers_over_the_whole_run() -> None:
    """Two answers of three tokens and prompts of ten, from the first due at 0 to the failure's end at 2 s."""
    traces = [trace(0), trace(1), failed(2, 100, end=2000)]

    assert output_tokens_per_second(traces).value == 6 / 2
    assert total_tokens_per_second(traces).value == 26 / 2
    assert requests_per_second(traces).value == 2 / 2
    assert output_tokens_per_second([]).value is None


def test_a_rate_of_which_a_part_is_unknown_is_none() -> None:
    """One answer without usage or counted chunks, and the sum would be too small; its requests still count."""
    traces = [trace(0), trace(1, chunks=[(30, None), (40, None)])]
    rate = output_tokens_per_second(traces)

    assert (rate.count, rate.unknown, rate.value) == (3, 1, None)
    assert total_tokens_per_second([trace(prompt_tokens=None)]).value is None
    assert requests_per_second(traces).count == 2


@pytest.mark.parametrize(
    ("limits", "met"),
    [
        (Limits(ttft=30 * MS), True),
        (Limits(ttft=29 * MS), False),
        (Limits(itl=14 * MS), True),
        (Limits(itl=13 * MS), False),
        (Limits(tpot=12 * MS), True),
        (Limits(tpot=11 * MS), False),
        (Limits(end_to_end=54 * MS), True),
        (Limits(end_to_end=53 * MS), False),
        (Limits(ttft=30 * MS, itl=13 * MS), False),
    ],
)
def test_a_good_request_keeps_every_limit(limits: Limits, met: bool) -> None:  # noqa: FBT001 - a drawn value
    """By hand: first token after 30 ms, gaps of 10 and 14, over after 54; a limit itself is within it."""
    assert meets(trace(), limits) is met


def test_goodput_is_of_the_requests_scheduled() -> None:
    """One good, one slow, one failed, one cut, one never sent: a fifth, not a half."""
    traces = [
        trace(0),
        trace(1, chunks=[(300, 1)]),
        failed(2, 0, 9),
        failed(3, 0, 9, ErrorClass.CUT),
        failed(4, 0, 9, ErrorClass.UNSENT),
    ]
    measured = goodput(traces, Limits(ttft=100 * MS))

    assert (measured.scheduled, measured.met, measured.undecided, measured.value) == (5, 1, 0, 0.2)
    assert goodput([], Limits(ttft=1)).value is None


def test_what_cannot_be_checked_is_not_met_and_is_told() -> None:
    """The gaps of a held-back answer are unknown; where another limit is broken, that decides."""
    held = trace(chunks=[(30, 5)])

    assert meets(held, Limits(itl=20 * MS)) is None
    assert meets(held, Limits(itl=20 * MS, ttft=20 * MS)) is False
    assert goodput([held], Limits(itl=20 * MS)).undecided == 1
    assert meets(trace(chunks=[(30, 1)]), Limits(itl=1)) is True
    assert meets(trace(chunks=[], output_tokens=0), Limits(ttft=1)) is None


def test_a_requests_own_deadline_counts_without_any_limit() -> None:
    """First tokens after 30 ms: within a deadline of 30, not of 29; who has none is met."""
    traces = [replace(trace(), deadline=deadline) for deadline in (30 * MS, 29 * MS, None)]

    assert [meets(one) for one in traces] == [True, False, True]
    assert goodput(traces).value == pytest.approx(2 / 3)
    assert [meets(one, Limits(ttft=20 * MS)) for one in traces] == [False, False, False]


@given(runs, st.integers(1, 600), st.integers(0, 600))
def test_a_wider_limit_never_lowers_goodput(drawn: list[RequestTrace], limit: int, more: int) -> None:
    """And with one on the time to first token alone it is the share of values within it."""
    narrow, wide = (goodput(drawn, Limits(ttft=one * MS)).value for one in (limit, limit + more))
    values = [value for one in drawn for value in TTFT_FROM_SCHEDULE.values(one) or ()]

    assert narrow is not None
    assert wide is not None
    assert narrow <= wide
    assert narrow == sum(value <= limit * MS for value in values) / len(drawn)


def test_limits_are_given_and_positive() -> None:
    """The message names the flags."""
    with pytest.raises(ConfigError, match="--ttft-limit, --itl-limit"):
        Limits()
    with pytest.raises(ConfigError, match="--end-to-end-limit is 0 ns; it must be positive"):
        Limits(end_to_end=0)
