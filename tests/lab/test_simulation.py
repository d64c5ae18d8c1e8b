import itertools
import time
from typing import Any

import pytest

from chairlift.core.config import POLICIES, PolicyName, SchedulerConfig
from chairlift.core.errors import OutsideValidRange
from chairlift.devices.model import DeviceModel
from chairlift.devices.registry import find_device_model
from chairlift.devices.valid import ValidRange
from chairlift.lab.client.options import Stop
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.simulation import SimulatedRun, simulate_load
from chairlift.records.client import ErrorClass, RequestTrace
from chairlift.records.client_metrics import PERCENTS
from chairlift.records.client_summary import summarize
from chairlift.records.metrics import END_TO_END, TIME_BETWEEN_TOKENS, TIME_TO_FIRST_TOKEN, distribution
from chairlift.runners.simulated import SimulatorSettings
from tests.sim.helpers import MILLISECOND, SECOND, Witness, device_model

MIXED = "arrivals=poisson arrivals.rate=30 prompt=uniform prompt.min=10 prompt.max=90 output=bimodal output.short=5 "
MIXED += "output.long=60 output.ratio=3:1 count=40"
CLOSED = "arrivals=closed arrivals.users=3 arrivals.think=20ms prompt=30 output=6 count=12"
BLOCKS = SimulatorSettings(num_kv_blocks=256)


def run(pairs: str, model: DeviceModel | None = None, *, blocks: int = 256, **more: Any) -> SimulatedRun:
    """Put a load to the toy device: 20 ms a step, 1 ms a token."""
    named = ("settings", "observers", "time_limit", "traces", "stop")
    options = {name: more.pop(name) for name in named if name in more}
    config = SchedulerConfig(**{"max_model_len": 512, **more})
    schedule = Schedule(load_from_pairs(pairs.split()))
    settings = options.pop("settings", SimulatorSettings(num_kv_blocks=blocks))
    return simulate_load(schedule, model or device_model(), config, settings=settings, **options)


@pytest.mark.parametrize("policy", POLICIES)
def test_clients_see_what_the_engine_recorded(policy: PolicyName) -> None:
    """The client's figures, reckoned from traces, are the engine's, reckoned from its records."""
    witness = Witness()
    traces = run(MIXED, policy=policy, observers=[witness]).traces
    records = list(witness.requests.values())
    seen = {one.metric.name: one for one in summarize(traces).distributions}

    for ours, theirs in (
        ("ttft_from_schedule", TIME_TO_FIRST_TOKEN),
        ("time_between_tokens", TIME_BETWEEN_TOKENS),
        ("end_to_end_from_schedule", END_TO_END),
    ):
        expected = distribution(theirs, records, PERCENTS)
        assert (seen[ours].count, seen[ours].unobservable) == (expected.count, expected.unobservable)
        assert seen[ours].percentiles == pytest.approx(expected.percentiles)
    assert len(traces) == 40
    assert sum(trace.output_tokens or 0 for trace in traces) == sum(record.output_tokens for record in records)


def test_results_that_leave_together_hide_the_time_between_tokens() -> None:
    """One chunk at the end, with all tokens."""
    traces = run(MIXED, policy="static").traces

    assert {len(trace.chunks) for trace in traces} == {1}
    assert all(trace.chunks[0].tokens == trace.output_tokens for trace in traces)
    assert summarize(traces).distributions[2].mean is None


def test_deadlines_are_judged_in_virtual_time() -> None:
    """Traces have their requests' deadlines, refused ones too; goodput counts who kept his."""
    traces = run("arrivals=burst arrivals.size=6 prompt=10 output=5 deadline=50ms", max_num_seqs=2).traces
    good = summarize(traces).goodput

    assert {trace.deadline for trace in traces} == {50_000_000}
    assert good is not None
    assert (good.limits, good.scheduled) == (None, 6)
    assert 0 < good.met < 6


def test_a_users_next_request_follows_the_answer_and_a_thought() -> None:
    """In a closed loop, 20 ms after one of the ends; and never more than three are in flight."""
    traces = run(CLOSED).traces
    ends = {trace.end for trace in traces}

    assert len(traces) == 12
    assert {trace.scheduled for trace in traces[3:]} <= {0, *(end + 20 * MILLISECOND for end in ends)}
    moments = sorted([(trace.scheduled, 1) for trace in traces] + [(trace.end, -1) for trace in traces])
    assert max(itertools.accumulate(change for _, change in moments)) == 3


def test_a_turn_finds_the_conversation_before_it_in_the_cache() -> None:
    """All full blocks of the last prompt and its answer, but for the last token, which was never computed."""
    pairs = "arrivals=constant arrivals.rate=1 count=4 prompt=40 output=24 sessions.turns=4 sessions.think=1s"
    traces = sorted(run(pairs).traces, key=lambda trace: trace.index)

    assert [trace.prompt_tokens for trace in traces] == [40, 104, 168, 232]
    assert [trace.cached_tokens for trace in traces] == [0, 48, 112, 176]
    assert [after.scheduled - before.end for before, after in itertools.pairwise(traces)] == [SECOND] * 3


def test_a_full_queue_turns_requests_away_as_overload() -> None:
    """With the engine's words, at the moment they came; the others are answered."""
    pairs = "arrivals=burst arrivals.size=9 prompt=30 output=6"
    traces = run(pairs, max_num_seqs=2, max_queued_requests=4).traces
    refused = [trace for trace in traces if trace.error is not None]

    assert {trace.error for trace in refused} == {ErrorClass.OVERLOADED}
    assert all("--max-queued-requests" in trace.error_message for trace in refused)
    assert all(trace.end == trace.scheduled == trace.sent for trace in refused)
    assert len(refused) == 5
    assert len(traces) == 9


def test_a_request_that_can_never_fit_is_rejected_and_ends_its_session() -> None:
    """The turns behind it never start."""
    pairs = "arrivals=constant arrivals.rate=1 count=8 prompt=200 output=24 sessions.turns=4 sessions.think=1s"
    traces = sorted(run(pairs).traces, key=lambda trace: trace.index)

    assert [trace.index for trace in traces] == [0, 1, 2, 4, 5, 6]
    assert [trace.error for trace in traces] == [None, None, ErrorClass.REJECTED] * 2


def test_the_time_limit_cuts_what_is_in_progress() -> None:
    """A trace for everything that came, the cut ones without an answer."""
    traces = run(MIXED, time_limit=600 * MILLISECOND).traces
    cut = [trace for trace in traces if trace.error is ErrorClass.CUT]

    assert cut
    assert all(trace.error_message == "the run's time limit was over" for trace in cut)
    assert all(trace.end >= 600 * MILLISECOND and trace.finish_reason is None for trace in cut)
    assert all(trace.scheduled <= 600 * MILLISECOND for trace in traces)


def test_asked_to_stop_it_cuts_what_is_in_progress() -> None:
    """And takes in nobody further."""
    stop = Stop()
    seen: list[RequestTrace] = []

    def look(trace: RequestTrace) -> None:
        seen.append(trace)
        if len(seen) == 5:
            stop.request()

    result = run(MIXED.replace("rate=30", "rate=10"), traces=look, stop=stop)

    assert result.traces == ()
    assert 5 <= len(seen) < 40
    assert {trace.error for trace in seen[5:]} <= {None, ErrorClass.CUT}
    assert seen[-1].error_message == "the run was interrupted"


def test_warm_up_is_marked() -> None:
    """As the load says."""
    traces = run(f"{MIXED} warmup_requests=7").traces

    assert sorted(trace.index for trace in traces if trace.warmup) == list(range(7))


@pytest.mark.parametrize("pairs", [MIXED.replace("count=40", "count=13"), f"{CLOSED} duration=300ms"])
def test_an_unfilled_batch_leaves_when_nobody_can_come_any_more(pairs: str) -> None:
    """At the last arrival of an open load, and when a closed loop's time is over."""
    traces = run(pairs, policy="static", batch_size=2).traces

    assert all(trace.ok for trace in traces)


@pytest.mark.parametrize(("ignore", "expected"), [("true", 50), ("false", 6)])
def test_an_answer_ends_of_itself_unless_it_is_told_not_to(ignore: str, expected: int) -> None:
    """Then it goes on to its bound."""
    pairs = f"arrivals=burst arrivals.size=3 prompt=30 output=6 max_tokens=50 ignore_eos={ignore}"

    assert {trace.output_tokens for trace in run(pairs).traces} == {expected}


def test_requests_with_a_common_prefix_share_its_blocks() -> None:
    """Of two groups, only the first request of each computes it; without a prefix nothing is shared."""
    pairs = "arrivals=constant arrivals.rate=1 count=12 prompt=20 output=4 prefix.tokens=64 prefix.groups=2"
    cached = sorted(trace.cached_tokens or 0 for trace in run(pairs).traces)

    assert cached == [0, 0, *[64] * 10]
    assert {trace.cached_tokens for trace in run(MIXED).traces} == {0}


def test_traces_can_be_left_out() -> None:
    """Nothing else changes."""
    whole, without = run(MIXED), run(MIXED, traces=False)

    assert without.traces == ()
    assert without.result == whole.result


def test_steps_outside_the_device_models_range_are_refused_or_told() -> None:
    """As the settings say."""
    model = device_model(valid=ValidRange(tokens=10_000, rows=3, context=10_000, total_context=10**6))
    with pytest.raises(OutsideValidRange, match="rows in a step"):
        run(MIXED, model)
    result = run(MIXED, model, settings=SimulatorSettings(num_kv_blocks=256, outside_range="warn"))

    assert result.steps_outside
    assert "rows in a step" in result.warnings[0]


def test_the_same_load_gives_the_same_traces_without_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice, with every clock broken."""
    pairs = f"{MIXED} prefix.tokens=32 prefix.groups=2"
    first = run(pairs).traces

    def fail() -> int:
        raise AssertionError("a simulation looked at a clock")

    with monkeypatch.context() as patch:
        for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"):
            patch.setattr(time, name, fail)
        again = run(pairs).traces
    assert again == first


def test_a_built_in_device_has_memory_of_its_own() -> None:
    """The pool is what its memory leaves."""
    result = run(MIXED, find_device_model("h100-sxm/llama-3.1-8b"), settings=SimulatorSettings())

    assert result.memory is not None
    assert result.capacity.num_blocks == result.memory.num_blocks > 20_000
