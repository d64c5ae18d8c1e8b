import time
from typing import Any

import pytest

from chairlift.advisor.evaluate.outcome import Outcome
from chairlift.advisor.evaluate.run import evaluate
from chairlift.advisor.evaluate.targets import Targets
from chairlift.core.errors import ConfigError
from chairlift.core.ledger import Category
from chairlift.devices.registry import find_device_model
from chairlift.devices.valid import ValidRange
from chairlift.lab.simulation import simulate_load
from chairlift.records.client_summary import summarize
from tests.advisor.evaluate.making import problem, rounds
from tests.sim.helpers import device_model

MIXED = (
    "arrivals=poisson arrivals.rate=8 prompt=uniform prompt.min=10 prompt.max=90 output=bimodal output.short=1 "
    "output.long=60 output.ratio=3:1 count=40"
)


def run(pairs: str = MIXED, **settings: Any) -> Outcome:
    """Under settings, on the toy device."""
    load = rounds(pairs)
    return evaluate(problem(load), settings, load.first)


def test_figures_are_those_of_the_clients_summary() -> None:
    """The same traces, by records.client_metrics: rates, first tokens, between tokens, end to end, goodput."""
    load = rounds(MIXED)
    targets = Targets(ttft_p99=90_000_000, itl_p99=60_000_000)
    asked = problem(load, targets)
    figures = evaluate(asked, {}, load.first).figures
    traces = simulate_load(load.first.schedule, asked.device, asked.config({}), settings=asked.simulator({})).traces
    summary = summarize(traces, limits=targets.per_request)

    assert figures is not None
    assert figures.itl is not None
    assert summary.goodput is not None
    seen = {one.metric.name: one for one in summary.distributions}
    for ours, theirs in (
        (figures.ttft, "ttft_from_schedule"),
        (figures.itl, "time_between_tokens"),
        (figures.e2e, "end_to_end_from_schedule"),
    ):
        assert ours.mean == pytest.approx(seen[theirs].mean)
        assert (ours.p50, ours.p90, ours.p99) == pytest.approx(tuple(seen[theirs].percentiles[p] for p in (50, 90, 99)))
    assert figures.tokens_per_second == pytest.approx(summary.rates[0].value)
    assert figures.requests_per_second == pytest.approx(summary.rates[2].value)
    assert figures.met == summary.goodput.value
    assert 0 < (figures.met or 0) < 1


def test_the_ledger_is_shares_of_the_wall_clock() -> None:
    """They sum to one, and a static load that waits for its batch has held time."""
    figures = run(policy="static", batch_size=4).figures

    assert figures is not None
    assert sum(figures.ledger.values()) == pytest.approx(1)
    assert figures.ledger[Category.HELD] > 0
    assert figures.tokens["dead"] > 0
    assert figures.batches == 10
    assert 0 < figures.recoverable < 1


def test_what_is_held_back_has_no_time_between_tokens() -> None:
    """Unless closed batches are told to stream."""
    held, streamed = run(policy="dynamic"), run(policy="dynamic", release="token")

    assert held.figures is not None
    assert streamed.figures is not None
    assert held.figures.itl is None
    assert streamed.figures.itl is not None
    assert streamed.figures.ttft.mean < held.figures.ttft.mean


def test_what_requests_waited_for_is_told_by_the_schedulers_reasons() -> None:
    """Few slots: slots; few blocks: blocks or preemption; and together no more than the time to the first token."""
    slots, blocks = run(max_num_seqs=1).figures, run(num_kv_blocks=12).figures

    assert slots is not None
    assert blocks is not None
    assert max(slots.waits, key=lambda reason: slots.waits[reason]) == "waiting_for_slot"
    assert "waiting_for_blocks" in blocks.waits
    assert sum(slots.waits.values()) <= slots.ttft.mean


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"max_num_seqs": 64, "max_num_batched_tokens": 32}, "setting", "--max-num-batched-tokens is 32"),
        ({"num_kv_blocks": 4}, "load_does_not_fit", "KV blocks"),
        ({"max_queued_requests": 1, "max_num_seqs": 1}, "load_does_not_fit", "--max-queued-requests"),
    ],
)
def test_what_cannot_be_is_a_refusal_with_its_reason(settings: dict[str, Any], kind: str, words: str) -> None:
    """As data, not as an exception: a search learns from it."""
    outcome = run(**settings)

    assert outcome.figures is None
    assert outcome.refusal is not None
    assert outcome.refusal.kind == kind
    assert words in outcome.refusal.message


def test_out_of_memory_is_a_refusal() -> None:
    """A share that leaves no block, and one that leaves too little for a step."""
    load = rounds("arrivals=burst arrivals.size=4 prompt=4000 output=8")
    asked = problem(load, device=find_device_model("h100-sxm/llama-3.1-8b"), max_num_batched_tokens=16_384)
    asked = asked.on(asked.device, num_kv_blocks=None)

    for share in (0.1, 1.0):
        outcome = evaluate(asked, {"gpu_memory_utilization": share}, load.first)
        assert outcome.refusal is not None
        assert outcome.refusal.kind == "out_of_memory"


def test_a_step_outside_the_device_models_range_is_a_refusal() -> None:
    """The model says nothing about it."""
    load = rounds(MIXED)
    model = device_model(valid=ValidRange(tokens=10_000, rows=2, context=10_000, total_context=10**6))
    outcome = evaluate(problem(load, device=model, max_num_batched_tokens=512), {}, load.first)

    assert outcome.refusal is not None
    assert outcome.refusal.kind == "outside_range"


def test_an_unknown_setting_is_an_error() -> None:
    """Nobody would learn from it."""
    load = rounds(MIXED)
    with pytest.raises(ConfigError, match="max_seqs"):
        problem(load).config({"max_seqs": 3})


def test_a_trial_has_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same outcome with every clock broken."""
    before = run()

    def fail() -> int:
        raise AssertionError("a trial looked at a clock")

    with monkeypatch.context() as patch:
        for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"):
            patch.setattr(time, name, fail)
        again = run()
    assert again == before
