import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.request import FinishReason
from chairlift.records.metrics import (
    END_TO_END,
    HELD_BACK,
    METRICS,
    NOT_OBSERVABLE,
    QUEUE_TIME,
    TIME_BETWEEN_TOKENS,
    TIME_TO_FIRST_TOKEN,
    TIME_TO_FIRST_TOKEN_COMPUTED,
    Metric,
    distribution,
    output_tokens_per_second,
    percentile,
)
from chairlift.records.schema import RequestRecord
from tests.records.samples import request


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50).map(sorted), st.floats(0, 100))
def test_percentiles_are_numpys_default(values: list[float], percent: float) -> None:
    """Linear interpolation between ranks, definition 7 of Hyndman and Fan."""
    assert percentile(values, percent) == pytest.approx(float(np.percentile(values, percent)), abs=1e-6)


STREAMED = request(arrival=10, first=30, gaps=(10, 14))
WITHHELD = request(arrival=10, first=30, gaps=(10, 14), released=90)


@pytest.mark.parametrize(
    ("metric", "streamed", "withheld"),
    [
        (TIME_TO_FIRST_TOKEN, [20], [80]),
        (TIME_TO_FIRST_TOKEN_COMPUTED, [20], [20]),
        (TIME_BETWEEN_TOKENS, [10, 14], None),
        (END_TO_END, [44], [80]),
        (QUEUE_TIME, [10], [10]),
        (HELD_BACK, [0], [36]),
    ],
    ids=lambda value: value.name if isinstance(value, Metric) else None,
)
def test_each_metric_runs_from_its_start_to_its_stop(
    metric: Metric[RequestRecord], streamed: list[int], withheld: list[int] | None
) -> None:
    """By hand: due at 10, admitted at 20, tokens at 30, 40 and 54, released as computed or together at 90."""
    for record, expected in ((STREAMED, streamed), (WITHHELD, withheld)):
        values = metric.values(record)
        assert (None if values is None else [value / 1e9 for value in values]) == expected


@pytest.mark.parametrize("reason", [FinishReason.ERROR, FinishReason.CANCELLED])
def test_who_was_not_answered_is_not_in_the_figures(reason: FinishReason) -> None:
    """Vllm 8115: a failed request has no time to first token, even if it had tokens; only its wait counts."""
    failed = request(reason=reason)

    counts = {metric.name: distribution(metric, [failed, STREAMED]).requests for metric in METRICS}

    assert counts == {metric.name: 2 if metric is QUEUE_TIME else 1 for metric in METRICS}


def test_where_results_are_held_back_the_time_between_tokens_is_not_observable() -> None:
    """It is not zero and not the computed gaps: nobody outside could have measured it."""
    only_withheld = distribution(TIME_BETWEEN_TOKENS, [WITHHELD])
    mixed = distribution(TIME_BETWEEN_TOKENS, [WITHHELD, STREAMED])

    assert (only_withheld.count, only_withheld.unobservable, only_withheld.mean) == (0, 1, None)
    assert str(only_withheld) == NOT_OBSERVABLE
    assert (mixed.count, mixed.unobservable, mixed.observable) == (2, 1, False)


def test_a_distribution_is_in_seconds() -> None:
    """Nanoseconds in the records, seconds in the figures; one value is all its percentiles."""
    one = distribution(END_TO_END, [STREAMED])

    assert (one.mean, one.minimum, one.maximum, one.percentiles[50], one.percentiles[99]) == (44,) * 5
    assert str(one) == "mean 44.000 s, p50 44.000, p99 44.000"


def test_nobody_has_no_distribution() -> None:
    """An empty run has no mean, and says none."""
    nothing = distribution(END_TO_END, [])

    assert (nothing.count, nothing.mean, nothing.percentiles) == (0, None, {})
    assert nothing.observable
    assert str(nothing) == "none"


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(51, 90), st.lists(st.integers(1, 9), max_size=5)), min_size=1)
)
def test_every_gap_of_every_answer_counts_once(drawn: list[tuple[int, int, list[int]]]) -> None:
    """The population of the time between tokens is pairs of tokens, not requests."""
    records: list[RequestRecord] = [request(arrival=a, first=f, gaps=tuple(gaps)) for a, f, gaps in drawn]

    measured = distribution(TIME_BETWEEN_TOKENS, records)

    assert measured.count == sum(len(gaps) for _, _, gaps in drawn)
    assert measured.requests == sum(bool(gaps) for _, _, gaps in drawn)


def test_output_per_second_counts_who_was_answered_over_the_whole_run() -> None:
    """3 + 3 tokens from the first arrival at 0 to the last release at 90; the failed one's tokens are not output."""
    rate = output_tokens_per_second([request(arrival=0), WITHHELD, request(reason=FinishReason.ERROR)])

    assert (rate.count, rate.seconds, rate.value) == (6, 90, 6 / 90)
    assert output_tokens_per_second([]).value is None


def test_every_metric_says_what_it_is() -> None:
    """No two share a name, and none leaves out where its clock starts and stops and whom it is about."""
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.unit == "s"
        assert all((metric.starts, metric.stops, metric.population))


@pytest.mark.parametrize(("percent", "fewest"), [(50, 1), (90, 10), (95, 20), (99, 100), (99.9, 1000)])
def test_people_are_told_a_percentile_of_values_enough_for_it(percent: float, fewest: int) -> None:
    """With one value fewer it would be the maximum in other words; as defined it is there all the same."""
    metric: Metric[int] = Metric("x", "s", "", "", "", lambda value: [float(value)])
    few, enough = (distribution(metric, range(count), [percent]) for count in (fewest - 1, fewest))

    assert few.told(percent) is None
    assert enough.told(percent) == enough.percentiles[percent]
