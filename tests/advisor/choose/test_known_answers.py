"""Loads whose answer is known: which policy, what decides, where it turns."""

from pathlib import Path

import pytest

from chairlift.advisor.choose.advice import Choice, choose
from chairlift.advisor.evaluate.base import problem_of
from chairlift.advisor.evaluate.pool import Pool
from chairlift.advisor.evaluate.rounds import rounds_of
from chairlift.advisor.evaluate.targets import Targets, default_objective
from chairlift.core.errors import ConfigError
from chairlift.devices.registry import find_device_model
from chairlift.lab.loads.files import load_from_pairs

DATA = Path(__file__).parent / "data"
H100 = find_device_model("h100-sxm/llama-3.1-8b")


def ask(pairs: str, *, count: int = 1, explain: bool = True, targets: Targets | None = None, **given: object) -> Choice:
    """On an H100, with the default objective unless targets are given."""
    load = rounds_of(load_from_pairs(pairs.split(), DATA), count=count, longest=H100.valid.context)
    if targets is None:
        targets = Targets(default_objective(waits_for_the_target=load.waits_for_the_target, limits=False))
    with Pool(1) as pool:
        return choose(pool, problem_of(H100, load, targets, given), load, targets, explain=explain)


def test_a_short_even_offline_batch_needs_static() -> None:
    """Everything is there and all answers are alike; the answer turns when the tail gets longer."""
    found = ask("arrivals=burst arrivals.size=96 prompt=uniform prompt.min=45 prompt.max=55 output=50", count=2)

    assert found.targets.objective == "throughput"
    assert found.decision.policy == "static"
    assert found.decision.limits_met
    assert found.tail is not None
    assert found.tail.changes_at is not None
    assert 1 < found.tail.changes_at < 8
    assert found.tail.cv_now == 0
    assert found.confidence is not None
    assert found.confidence.level != "high"  # no device was measured


def test_online_with_even_lengths_and_little_concurrency_dynamic_is_the_better_bargain() -> None:
    """Static would wait for its batch; continuous gains next to nothing."""
    found = ask("arrivals=poisson arrivals.rate=0.05 prompt=300 output=150 count=60", count=2)

    assert found.targets.objective == "mean-e2e"
    assert found.decision.policy == "dynamic"
    assert found.decision.gaps["dynamic"].cost < 1.05
    assert found.decision.gaps["static"].cost > 2
    assert found.tail is not None
    assert found.tail.to == "continuous"


def test_a_long_tail_needs_continuous() -> None:
    """Online, with answers from a few tokens to thousands: dead rows show why; offline the tail alone decides."""
    online = ask(
        "arrivals=poisson arrivals.rate=20 prompt=300 output=lognormal output.mean=200 output.cv=1.5 "
        "output.max=4000 count=60",
        explain=False,
    )
    offline = ask("arrivals=burst arrivals.size=64 prompt=100 output=bimodal output.short=20 output.long=600")

    assert online.decision.policy == offline.decision.policy == "continuous"
    figures = offline.contenders["static"].outcomes[0].figures
    assert figures is not None
    assert figures.tokens["dead"] > figures.tokens["decode"]
    assert offline.tail is not None
    assert offline.tail.to in ("static", "dynamic")


def test_bursts_of_code_completion_need_continuous() -> None:
    """Azure's code trace: prompts of thousands, answers of a dozen tokens and now and then of hundreds."""
    found = ask("arrivals=trace arrivals.file=azure_code.csv count=60", explain=False)

    assert found.decision.policy == "continuous"
    assert found.decision.gaps["dynamic"].cost > 2


def test_long_prompts_need_continuous() -> None:
    """Mooncake's conversations: one long prompt more in a batch and everybody pads to it."""
    found = ask("arrivals=trace arrivals.file=mooncake_conversation.jsonl count=24", explain=False)

    assert found.decision.policy == "continuous"
    figures = found.contenders["static"].outcomes[0].figures
    assert figures is not None
    assert figures.tokens["padding"] > 0


def test_limits_that_everybody_keeps_leave_the_simplest() -> None:
    """A rate that all can follow and ten seconds for each: nothing is gained beyond static or dynamic."""
    pairs = "arrivals=poisson arrivals.rate=2 prompt=300 output=100 count=40"
    easy = ask(pairs, targets=Targets(e2e_p99=30 * 10**9), explain=False)
    hard = ask(pairs, targets=Targets(itl_p99=60_000_000, ttft_p99=200_000_000), explain=False)

    assert easy.decision.policy in ("static", "dynamic")
    assert easy.decision.limits_met
    assert hard.decision.policy == "continuous"
    assert hard.decision.limits_met


def test_limits_that_nobody_can_keep_are_said() -> None:
    """The one that comes closest, and not called met; latency binds."""
    found = ask("arrivals=poisson arrivals.rate=2 prompt=300 output=100 count=20", targets=Targets(itl_p99=1_000_000))

    assert not found.decision.limits_met
    assert found.binding is not None
    assert found.binding.constraint == "latency"


def test_a_share_is_a_share() -> None:
    """Of one."""
    load = rounds_of(load_from_pairs(["arrivals=burst", "arrivals.size=2", "prompt=9", "output=9"]), count=1)
    with Pool(1) as pool, pytest.raises(ConfigError, match="--within is 5"):
        choose(pool, problem_of(H100, load, Targets(), {}), load, Targets(), within=5)


def test_a_length_that_does_not_hold_the_load_is_refused() -> None:
    """With both numbers."""
    with pytest.raises(ConfigError, match=r"--max-model-len is 10, .* 18 tokens"):
        ask("arrivals=burst arrivals.size=2 prompt=9 output=9", max_model_len=10)
