from collections.abc import Mapping
from dataclasses import replace

import pytest

from chairlift.advisor.choose.decision import decide
from chairlift.advisor.choose.search import Contender
from chairlift.advisor.evaluate.outcome import Outcome, Refusal
from chairlift.advisor.evaluate.targets import Targets
from chairlift.core.config import POLICIES, PolicyName
from tests.advisor.evaluate.test_targets import FIGURES, latency

MS = 1_000_000


def contenders(rates: Mapping[PolicyName, tuple[float, ...] | None]) -> dict[PolicyName, Contender]:
    """By tokens/s in each round; None: it does not run."""
    found: dict[PolicyName, Contender] = {}
    for policy in POLICIES:
        several = rates[policy]
        outcomes: tuple[Outcome, ...] = (Outcome({}, None, Refusal("out_of_memory", "too little")),)
        if several is not None:
            outcomes = tuple(Outcome({}, replace(FIGURES, tokens_per_second=rate)) for rate in several)
        found[policy] = Contender(policy, {"policy": policy}, outcomes, outcomes)
    return found


@pytest.mark.parametrize(
    ("static", "dynamic", "expected"),
    [(96, 97, "static"), (90, 96, "dynamic"), (90, 94, "continuous"), (110, 120, "static")],
)
def test_the_simplest_that_is_within_five_per_cent(static: float, dynamic: float, expected: str) -> None:
    """Of 100 tokens/s under continuous."""
    rates: dict[PolicyName, tuple[float, ...] | None] = {
        "static": (static, static),
        "dynamic": (dynamic, dynamic),
        "continuous": (100.0, 100.0),
    }
    decision = decide(contenders(rates), Targets())

    assert decision.policy == expected
    assert decision.limits_met
    assert decision.gaps["static"].cost == pytest.approx(100 / static)


def test_the_share_can_be_set() -> None:
    """A fifth lets more through."""
    rates: dict[PolicyName, tuple[float, ...] | None] = {"static": (85.0,), "dynamic": (85.0,), "continuous": (100.0,)}

    assert decide(contenders(rates), Targets(), 0.2).policy == "static"
    assert decide(contenders(rates), Targets(), 0.1).policy == "continuous"


def test_rounds_that_disagree_are_told() -> None:
    """The mean decides, and it is not called agreed."""
    rates: dict[PolicyName, tuple[float, ...] | None] = {
        "static": (80.0, 120.0),
        "dynamic": (50.0, 50.0),
        "continuous": (100.0, 100.0),
    }
    decision = decide(contenders(rates), Targets())

    assert not decision.gaps["static"].agreed(0.05)
    assert decision.gaps["dynamic"].agreed(0.05)


def test_a_policy_that_breaks_a_limit_is_out() -> None:
    """However fast it is, where continuous keeps it; the other way round it wins."""
    both = contenders({"static": (300.0,), "dynamic": (300.0,), "continuous": (100.0,)})
    slow = Outcome({}, replace(FIGURES, tokens_per_second=300.0, e2e=latency(9.0)))
    targets = Targets(e2e_p99=2_000 * MS)
    late = {
        **both,
        "static": replace(both["static"], outcomes=(slow,)),
        "dynamic": replace(both["dynamic"], outcomes=(slow,)),
    }

    assert decide(late, targets).policy == "continuous"
    assert decide({**both, "continuous": replace(both["continuous"], outcomes=(slow,))}, targets).policy == "static"
    none = {name: replace(one, outcomes=(slow,)) for name, one in both.items()}
    decision = decide(none, targets)
    assert decision.policy == "static"
    assert not decision.limits_met


def test_what_does_not_run_is_not_recommended() -> None:
    """And where nothing runs, nothing is."""
    alone = decide(contenders({"static": None, "dynamic": None, "continuous": (1.0,)}), Targets())
    closed = decide(contenders({"static": None, "dynamic": (1.0,), "continuous": None}), Targets())
    nothing = decide(contenders({"static": None, "dynamic": None, "continuous": None}), Targets())

    assert (alone.policy, closed.policy, nothing.policy) == ("continuous", "dynamic", None)
