"""How sure the answer is: the gap against its spread, and against the device model's error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from chairlift.advisor.choose.decision import CLOSED, Decision, gap_between
from chairlift.advisor.choose.search import Contender
from chairlift.advisor.evaluate.pool import Pool, Trial
from chairlift.advisor.evaluate.relief import slower
from chairlift.advisor.evaluate.rounds import Rounds
from chairlift.advisor.evaluate.run import Problem
from chairlift.advisor.evaluate.targets import Targets
from chairlift.core.config import PolicyName
from chairlift.devices.model import DeviceModel

ANALYTIC_ERROR: Final = 0.3
"""Error of a step's time that is assumed of a device model from data sheets: docs/devices.md tells how far off they
were beside a published table."""
LEAST_ERROR: Final = 0.05
"""A calibrated model is doubted by this much at least."""


@dataclass(frozen=True, slots=True)
class Confidence:
    """What the answer rests on."""

    level: Literal["high", "medium", "low"]
    reasons: tuple[str, ...]
    clear: bool
    """Whether all rounds lie on the same side of the threshold."""
    error: float
    """Of a step's time, as the device model states it or as is assumed."""
    same_when_off: bool
    """Whether the answer is the same with all steps longer and shorter by that."""


def stated_error(device: DeviceModel) -> float:
    """The largest of its terms' errors; an assumption where nothing was measured."""
    errors = device.provenance.errors
    if not device.calibrated or not errors:
        return ANALYTIC_ERROR
    return max(LEAST_ERROR, *errors.values())


def confidence_in(
    pool: Pool,
    problem: Problem,
    load: Rounds,
    targets: Targets,
    contenders: Mapping[PolicyName, Contender],
    decision: Decision,
) -> Confidence:
    """Judge the answer, and ask it again on a slower and on a faster device."""
    clear = all(_clear(decision, policy) for policy in decision.gaps)
    error = stated_error(problem.device)
    same = True
    for share in (error, -error / (1 + error)):
        there = problem.on(slower(problem.device, share))
        outcomes = dict(
            zip(
                contenders,
                pool.run(Trial(there, one.settings, load.first) for one in contenders.values()),
                strict=True,
            )
        )
        enough = [
            policy
            for policy in decision.gaps
            if gap_between([outcomes[policy]], [outcomes["continuous"]], targets, policy).enough(decision.within)
        ]
        same &= (enough[0] if enough else "continuous") == decision.policy
    several = len(load.rounds) > 1
    reasons = [
        "one round alone has nothing to agree with (--rounds)"
        if not several
        else f"all {len(load.rounds)} rounds agree"
        if clear
        else "the rounds disagree about a gap",
        f"with all steps {error:.0%} slower, or faster by as much, the answer "
        + ("is the same" if same else "is another one"),
        f"the device model is {problem.device.provenance.kind}",
    ]
    trusted = problem.device.calibrated
    level: Literal["high", "medium", "low"] = (
        "low" if not (clear and same and several) else "high" if trusted else "medium"
    )
    return Confidence(level, tuple(reasons), clear, error, same)


def _clear(decision: Decision, policy: PolicyName) -> bool:
    """Whether all rounds say the same of a policy. One that is less simple than the recommended is not asked."""
    if decision.policy in CLOSED and CLOSED.index(policy) > CLOSED.index(decision.policy):
        return True
    return decision.gaps[policy].agreed(decision.within)
