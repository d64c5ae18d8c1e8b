import json

from hypothesis import given

from chairlift.records.client import ErrorClass, RequestTrace
from chairlift.records.client_rates import Limits
from chairlift.records.client_summary import definitions, summarize
from tests.records.traces import MS, failed, health, runs, trace


def test_a_run_in_figures() -> None:
    """Warm-up and impossible traces are in no figure, failures are counted by class."""
    traces = [
        trace(0, warmup=True),
        trace(1),
        trace(2, sent=31),
        failed(3, 0, 90),
        failed(4, 0, 90, ErrorClass.CUT),
        failed(5, 0, 90),
    ]
    summary = summarize(traces, [health(1000, 0)], Limits(ttft=40 * MS))
    told = summary.to_json()

    assert (summary.scheduled, summary.answered, summary.warmup) == (4, 1, 1)
    assert summary.errors == {"timeout": 2, "cut": 1}
    assert told["requests"]["refusals"] == [{"index": 2, "why": summary.refused[0].why}]
    assert told["metrics"]["ttft_from_schedule"]["p99.9"] == 0.03
    assert told["goodput"]["value"] == 0.25
    assert told["rates"]["output_tokens_per_second"]["value"] == 3 / 0.09


def test_nothing_is_published_of_nothing() -> None:
    """No zeros: a figure that does not exist is null."""
    told = summarize([failed(0, 0, 5)]).to_json()

    assert {rate["value"] for rate in told["rates"].values()} == {None}
    assert {one["mean"] for name, one in told["metrics"].items() if name != "send_lag"} == {None}
    assert summarize([]).to_json()["requests"]["scheduled"] == 0


def test_what_could_not_be_observed_is_counted() -> None:
    """Beside the figures, by name."""
    told = summarize([trace(chunks=[(30, 5)])]).to_json()["metrics"]["time_between_tokens"]

    assert (told["not_observable"], told["count"], told["mean"]) == (1, 0, None)


@given(runs)
def test_figures_are_plain_json_and_each_has_its_definition(drawn: list[RequestTrace]) -> None:
    """No infinities, no numbers that are none; nothing is published without its words."""
    told = summarize(drawn, limits=Limits(ttft=MS)).to_json()
    words = definitions()

    assert json.loads(json.dumps(told, allow_nan=False)) == json.loads(json.dumps(told))
    assert {*told["metrics"], *told["rates"], "goodput", "window", "stationary", "little"} == set(words)
    assert all(len(one) > 40 for one in words.values())


def test_an_error_has_the_words_of_the_first() -> None:
    """A count alone says nothing of the cause; a class about which nobody said anything has none."""
    rejected = failed(2, 0, 5, ErrorClass.REJECTED, error_message="the queue is full")
    later = failed(3, 0, 4, ErrorClass.REJECTED, error_message="still full")
    summary = summarize([later, rejected, failed(4, 0, 5, ErrorClass.CUT)])

    assert summary.examples == {"rejected": "the queue is full"}
    assert summary.to_json()["requests"]["error_examples"] == {"rejected": "the queue is full"}
