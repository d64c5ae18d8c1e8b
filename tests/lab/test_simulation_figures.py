from typing import Any

import pytest

from chairlift.core.config import POLICIES, SchedulerConfig
from chairlift.devices.registry import find_device_model
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.simulation import simulate_load
from chairlift.lab.simulation_figures import PERCENTS, FiguresObserver, SimulatedFigures
from chairlift.records.client_summary import Summary, summarize
from chairlift.records.metrics import Distribution
from chairlift.runners.simulated import SimulatorSettings

LOAD = (
    "arrivals=gamma arrivals.rate=40 arrivals.cv=2 prompt=lognormal prompt.median=300 prompt.sigma=1 prompt.max=1500 "
)
LOAD += "output=exponential output.mean=150 output.cap=500 output.min=1 count=120"


def both(pairs: str, **settings: Any) -> tuple[SimulatedFigures, Summary]:
    """The figures from runs, and those from traces, of one simulation."""
    load = load_from_pairs(pairs.split())
    observer = FiguresObserver(load)
    config = SchedulerConfig(**{"max_num_seqs": 64, **settings})
    blocks = SimulatorSettings(num_kv_blocks=4000)
    run = simulate_load(
        Schedule(load), find_device_model("l4/qwen2.5-7b"), config, settings=blocks, observers=[observer]
    )
    return observer.figures(run), summarize(run.traces)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("pairs", [LOAD, f"{LOAD} warmup_requests=30"])
def test_figures_from_runs_are_those_from_traces(pairs: str, policy: str) -> None:
    """Every count, mean and percentile, and the rate."""
    ours, summary = both(pairs, policy=policy, release="token")
    theirs: dict[str, Distribution] = {one.metric.name: one for one in summary.distributions}

    assert (ours.scheduled, ours.answered) == (summary.scheduled, summary.answered)
    assert ours.output_tokens_per_second == pytest.approx(summary.rates[0].value)
    for spread, name in (
        (ours.ttft, "ttft_from_schedule"),
        (ours.time_between_tokens, "time_between_tokens"),
        (ours.end_to_end, "end_to_end_from_schedule"),
    ):
        assert spread is not None
        assert spread.count == theirs[name].count
        assert (spread.mean, spread.maximum) == pytest.approx((theirs[name].mean, theirs[name].maximum))
        assert spread.percentiles == pytest.approx({percent: theirs[name].percentiles[percent] for percent in PERCENTS})


@pytest.mark.parametrize("pairs", [LOAD, LOAD.replace("rate=40", "rate=0.2"), f"{LOAD} warmup_requests=20"])
def test_a_queue_that_grows_is_told_as_it_is_of_traces(pairs: str) -> None:
    """By the same medians; none where it does not."""
    ours, summary = both(pairs, max_num_seqs=8)
    theirs = summary.stationarity

    assert ours.growth == (theirs.ttft if theirs.ttft_grows else None)
    assert (ours.growth is None) == ("rate=0.2" in pairs)


def test_what_nobody_can_observe_is_none() -> None:
    """Times between tokens of results that leave together; and everything where nobody was answered."""
    assert both(LOAD, policy="static")[0].time_between_tokens is None
    nothing, _ = both(LOAD.replace("prompt.max=1500", "prompt.min=1400 prompt.max=1500"), max_model_len=1000)
    assert (nothing.answered, nothing.refused, nothing.ttft, nothing.output_tokens_per_second) == (0, 120, None, None)


def test_plain_values_for_json() -> None:
    """Seconds under the names of the percentiles."""
    told = both(LOAD)[0].to_json()

    assert set(told["ttft"]) == {"count", "mean", "p50", "p90", "p99", "max"}
    assert 0 < told["busy"] <= 1
