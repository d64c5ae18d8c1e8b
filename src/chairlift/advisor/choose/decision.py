"""The simplest policy that is within a few per cent of continuous on the target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from chairlift.advisor.choose.search import Contender
from chairlift.advisor.evaluate.outcome import Outcome
from chairlift.advisor.evaluate.targets import Targets
from chairlift.core.config import PolicyName
from chairlift.lab.statistics import Ratio, paired_ratio

WITHIN: Final = 0.05
"""A simpler policy that is worse by no more than this share is enough, unless told otherwise."""
SIMPLEST: Final[tuple[PolicyName, ...]] = ("static", "dynamic", "continuous")
CLOSED: Final[tuple[PolicyName, ...]] = ("static", "dynamic")


@dataclass(frozen=True, slots=True)
class Gap:
    """How much worse than continuous a closed policy is on the target."""

    policy: PolicyName
    cost: float
    """1: the same; 1.2: a fifth worse; below 1: better. Infinite where it breaks limits that continuous keeps, or
    does not run where that does."""
    interval: Ratio | None
    """Of the cost over the rounds; None where it is no ratio of two figures."""
    rounds: tuple[float, ...] = ()
    """The cost in each round; empty without an interval."""

    def enough(self, within: float) -> bool:
        return self.cost <= 1 + within

    def agreed(self, within: float) -> bool:
        """Whether every round says the same."""
        return len({cost <= 1 + within for cost in self.rounds}) < 2


@dataclass(frozen=True, slots=True)
class Decision:
    """Which policy."""

    policy: PolicyName | None
    """None: nothing runs."""
    gaps: Mapping[PolicyName, Gap]
    """Of CLOSED."""
    within: float
    limits_met: bool
    """Whether the recommended one keeps every limit in every round."""


def decide(contenders: Mapping[PolicyName, Contender], targets: Targets, within: float = WITHIN) -> Decision:
    """The first of static, dynamic, continuous that is enough."""
    continuous = contenders["continuous"]
    gaps = {policy: gap_between(contenders[policy].outcomes, continuous.outcomes, targets, policy) for policy in CLOSED}
    running = [policy for policy in SIMPLEST if all(one.figures for one in contenders[policy].outcomes)]
    # Where continuous does not run, every closed policy that does costs less: its gap is zero.
    chosen = next((one for one in running if one == "continuous" or gaps[one].enough(within)), None)
    return Decision(chosen, gaps, within, chosen is not None and contenders[chosen].meets(targets))


def gap_between(closed: Sequence[Outcome], continuous: Sequence[Outcome], targets: Targets, policy: PolicyName) -> Gap:
    """Compare two policies round by round."""
    ours, theirs = ([targets.rank(one) for one in several] for several in (closed, continuous))
    ranks = min(rank for rank, _ in ours), min(rank for rank, _ in theirs)
    if ranks[0] != ranks[1] or ranks[0] == 0:
        return Gap(policy, 0.0 if ranks[0] > ranks[1] else math.inf, None)
    if ranks[0] == 1:
        return Gap(policy, _mean_violation(closed, targets) / _mean_violation(continuous, targets), None)
    values = [_values(several, targets) for several in (closed, continuous)]
    if targets.higher_is_better:
        values.reverse()
    if min(min(one) for one in values) <= 0:
        return Gap(policy, 1.0 if values[0] == values[1] else math.inf, None)
    interval = paired_ratio(*values)
    costs = tuple(above / below for above, below in zip(*values, strict=True))
    return Gap(policy, interval.middle, interval, costs)


def _values(outcomes: Sequence[Outcome], targets: Targets) -> list[float]:
    """The objective's, of rounds that have one."""
    found = [targets.value(one.figures) for one in outcomes if one.figures is not None]
    return [value for value in found if value is not None]


def _mean_violation(outcomes: Sequence[Outcome], targets: Targets) -> float:
    """Of limits in rounds that all run; what cannot be observed counts as far off."""
    found = [targets.violation(one.figures) for one in outcomes if one.figures is not None]
    return fmean(min(one, 1e9) for one in found)
