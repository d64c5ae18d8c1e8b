import pytest
from hypothesis import given

from chairlift.records.client import RequestTrace
from chairlift.records.client_metrics import TIME_PER_OUTPUT_TOKEN, TTFT_FROM_SEND
from chairlift.records.metrics import distribution
from chairlift.records.tools import DEFINITIONS, TOOLS, ToolName, as_tool
from tests.records.traces import MS, failed, runs, trace

TRACE = trace(due=0, sent=10, chunks=[(30, 2), (42, 3)], first_event=20 * MS, end=50)
"""A role-only event at 20, two tokens at 30, three at 42, over at 50."""


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("vllm", {"ttft_ms": 10, "tpot_ms": 22 / 4, "itl_ms": 11, "e2el_ms": 32}),
        (
            "guidellm",
            {
                "time_to_first_token_ms": 20,
                "time_per_output_token_ms": 32 / 5,
                "inter_token_latency_ms": 12 / 4,
                "request_latency": 0.04,
            },
        ),
        (
            "aiperf",
            {
                "time_to_first_token": 20,
                "inter_token_latency": 12 / 4,
                "inter_chunk_latency": 12,
                "request_latency": 32,
                "output_token_throughput_per_user": 1000 / 3,
            },
        ),
    ],
)
def test_one_trace_by_each_tools_definitions(tool: ToolName, expected: dict[str, float]) -> None:
    """Four tools' words for one run differ: by hand, in each tool's unit."""
    view = as_tool(tool, [TRACE])

    assert {one.metric.name: one.mean for one in view.distributions} == pytest.approx(expected)


def test_the_length_of_a_run_differs_too() -> None:
    """Five tokens: from due to the end, from sent to the end, from sent to the last response."""
    assert [as_tool(tool, [TRACE]).output_rate.value for tool in TOOLS] == pytest.approx(
        [5 / 0.05, 5 / 0.04, 5 / 0.032]
    )


@pytest.mark.parametrize("tool", TOOLS)
def test_failures_are_counted_beside(tool: ToolName) -> None:
    """And answers without content are failures to them all."""
    view = as_tool(tool, [TRACE, failed(1, 0, 900), trace(2, chunks=[], end=5, output_tokens=0)])

    assert (view.successful, view.failed) == (1, 2)
    assert as_tool(tool, []).output_rate.value is None


@pytest.mark.parametrize("tool", TOOLS)
def test_without_usage_means_are_not_observable(tool: ToolName) -> None:
    """The tools would tokenize the text again; here nothing is guessed."""
    view = as_tool(tool, [trace(output_tokens=None)])

    assert view.output_rate.value is None
    means = {"tpot_ms", "time_per_output_token_ms", "inter_token_latency_ms", "inter_token_latency"}
    assert all(one.unobservable for one in view.distributions if one.metric.name in means)


@given(runs)
def test_where_every_chunk_is_a_token_all_mean_the_same_by_tpot(drawn: list[RequestTrace]) -> None:
    """VLLM's TPOT, the ITL of GuideLLM and AIPerf, and ours agree then, and TTFT from send always does."""
    single = [one for one in drawn if all(chunk.tokens == 1 for chunk in one.chunks)]
    ours = distribution(TIME_PER_OUTPUT_TOKEN, single).mean
    first = distribution(TTFT_FROM_SEND, drawn).mean

    for tool, mean, ttft in (
        ("vllm", "tpot_ms", "ttft_ms"),
        ("guidellm", "inter_token_latency_ms", "time_to_first_token_ms"),
        ("aiperf", "inter_token_latency", "time_to_first_token"),
    ):
        theirs = {one.metric.name: one.mean for one in as_tool(tool, single).distributions}  # type: ignore[arg-type]
        assert theirs[mean] == (None if ours is None else pytest.approx(ours * 1000))
        all_of_them = {one.metric.name: one.mean for one in as_tool(tool, drawn).distributions}  # type: ignore[arg-type]
        assert first is not None
        assert all_of_them[ttft] == pytest.approx(first * 1000)


def test_every_definition_says_where_it_was_read() -> None:
    """Tool, file and revision; and each metric has all its words."""
    for tool in DEFINITIONS.values():
        assert "github.com/" in tool.source
        assert tool.rate_definition
        assert all(all((one.starts, one.stops, one.population)) for one in tool.metrics)
