from dataclasses import replace
from typing import Any

import pytest

from chairlift.advisor.evaluate.outcome import Figures, Latency, Outcome, Refusal
from chairlift.advisor.evaluate.targets import OBJECTIVES, Targets, default_objective
from chairlift.core.errors import ConfigError

MS = 1_000_000


def latency(value: float) -> Latency:
    """All alike."""
    return Latency(value, value, value, value)


FIGURES = Figures(
    requests=10,
    tokens_per_second=100.0,
    requests_per_second=2.0,
    span=5.0,
    ttft=latency(0.2),
    e2e=latency(1.5),
    itl=latency(0.03),
    met=0.5,
    steady=True,
    ledger={},
    tokens={},
    busy=1.0,
    useful=1.0,
    recoverable=0.0,
    rows=1.0,
    kv_peak=0.5,
    blocks=10,
    preemptions=0,
    steps=10,
    batches=0,
    waits={},
)


def outcome(**changes: Any) -> Outcome:
    """With other figures."""
    return Outcome({}, replace(FIGURES, **changes))


def test_every_objective_has_a_value() -> None:
    """In its unit."""
    found = {name: Targets(name, ttft_p99=MS if name == "goodput" else None).value(FIGURES) for name in OBJECTIVES}

    assert found["throughput"] == 100
    assert found["goodput"] == 1
    assert found["p99-e2e"] == found["mean-e2e"] == 1.5
    assert found["p50-itl"] == 0.03


def test_limits_come_first_then_the_objective_then_the_least_violation() -> None:
    """A refusal is below everything that runs."""
    targets = Targets(itl_p99=50 * MS)
    ranked = [
        Outcome({}, None, Refusal("out_of_memory", "")),
        outcome(itl=None),
        outcome(itl=latency(0.2), tokens_per_second=900.0),
        outcome(itl=latency(0.1), tokens_per_second=50.0),
        outcome(tokens_per_second=60.0),
        outcome(),
    ]

    assert sorted(ranked, key=targets.rank) == ranked
    assert [targets.meets(one) for one in ranked] == [False] * 4 + [True] * 2


def test_the_lower_latency_is_the_better() -> None:
    """And the higher throughput."""
    slow, fast = outcome(e2e=latency(3.0)), outcome(tokens_per_second=1.0)

    assert Targets("p99-e2e").rank(fast) > Targets("p99-e2e").rank(slow)
    assert Targets("throughput").rank(slow) > Targets("throughput").rank(fast)


def test_reached_tells_value_and_limit_with_its_flag() -> None:
    """Seconds, and what cannot be observed is not met."""
    one, two = Targets(ttft_p99=400 * MS, itl_p99=10 * MS).reached(replace(FIGURES, itl=None))

    assert (one.flag, one.value, one.limit, one.ratio) == ("--ttft-p99", 0.2, 0.4, 0.5)
    assert two.value is None
    assert two.ratio == float("inf")


def test_a_margin_tightens_every_limit() -> None:
    """Those of percentiles and those of each request alike; the limit itself is told as it was given."""
    loose, tight = Targets(e2e_p99=1600 * MS), Targets(e2e_p99=1600 * MS, margin=0.1)
    (one,) = tight.reached(FIGURES)

    assert loose.meets(outcome())
    assert not tight.meets(outcome())
    assert one.limit == 1.6
    assert tight.per_request is not None
    assert tight.per_request.end_to_end == 1440 * MS


def test_streams_are_needed_where_somebody_looks_at_tokens() -> None:
    """Not for whole answers."""
    assert Targets(ttft_p99=MS).needs_streams
    assert Targets("p99-itl").needs_streams
    assert not Targets("p99-e2e", e2e_p99=MS).needs_streams


@pytest.mark.parametrize(
    ("objective", "limits", "words"),
    [
        ("speed", {}, "--target is 'speed'"),
        ("goodput", {}, "needs limits"),
        ("throughput", {"itl_p99": 0}, "--itl-p99 is 0"),
        ("throughput", {"margin": 1.0}, "--margin is 1"),
    ],
)
def test_targets_that_cannot_be_are_refused(objective: str, limits: dict[str, Any], words: str) -> None:
    """With the flag."""
    with pytest.raises(ConfigError, match=words):
        Targets(objective, **limits)


def test_the_objective_that_nobody_names() -> None:
    """Throughput where it says something, else what a user feels."""
    assert default_objective(waits_for_the_target=True, limits=False) == "throughput"
    assert default_objective(waits_for_the_target=False, limits=True) == "throughput"
    assert default_objective(waits_for_the_target=False, limits=False) == "mean-e2e"
