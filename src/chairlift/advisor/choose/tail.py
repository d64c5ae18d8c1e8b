"""How much longer the outputs' tail must get before the answer changes.

One number changes the lengths of a load's answers and nothing else:

    below 1   every answer comes that much closer to the mean: 0 makes them all alike
    above 1   the longest eighth of the answers get so many times as long
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Any, Final

from chairlift.advisor.choose.decision import gap_between
from chairlift.advisor.choose.search import SIZE_SETTING, Contender, best
from chairlift.advisor.evaluate.pool import Pool, Trial
from chairlift.advisor.evaluate.rounds import Listed, Round
from chairlift.advisor.evaluate.run import Problem
from chairlift.advisor.evaluate.targets import Targets
from chairlift.core.config import PolicyName
from chairlift.lab.loads.request import ScheduledRequest

LONGEST: Final = 64.0
"""The tail is not stretched further."""
SHARE: Final = 8
"""One in so many answers is of the tail."""
_STEPS: Final = 4


@dataclass(frozen=True, slots=True)
class Tail:
    """Where the answer changes."""

    changes_at: float | None
    """The factor; None: it does not, between all alike and LONGEST."""
    to: PolicyName | None
    """What it changes to."""
    looked_up_to: float
    """How far was looked: LONGEST, or as far as the model's context lets answers grow; 0 for a look towards equal
    lengths."""
    cv_now: float
    """Standard deviation over mean of the answers' lengths."""
    cv_there: float | None
    """The same where it changes."""


def find_tail(
    pool: Pool,
    problem: Problem,
    load: Round,
    targets: Targets,
    contenders: Mapping[PolicyName, Contender],
    recommended: PolicyName,
    within: float,
) -> Tail:
    """Bisect on the first round.

    A closed policy tries half and twice its batch size at every length, so that it is not beaten for a size that suited
    other lengths.
    """
    look = _Look(pool, problem, load, targets, contenders, within)
    if recommended == "continuous":
        return _towards_equal(look)
    return _towards_longer(look, recommended)


@dataclass(frozen=True, slots=True)
class _Look:
    pool: Pool
    problem: Problem
    load: Round
    targets: Targets
    contenders: Mapping[PolicyName, Contender]
    within: float

    def enough(self, factor: float, policies: Sequence[PolicyName]) -> PolicyName | None:
        """The first of these closed policies that is within reach of continuous there."""
        there = self.stretched(factor)
        longest = max(one.prompt_tokens + one.max_tokens for one in there.schedule)
        problem = self.problem.on(
            self.problem.device, max_model_len=max(longest, self.problem.settings.get("max_model_len", 0))
        )
        several = [*(settings for policy in policies for settings in self._near(policy))]
        continuous = self.contenders["continuous"].settings
        outcomes = self.pool.run(Trial(problem, settings, there) for settings in [continuous, *several])
        for policy in policies:
            own = [one for one in outcomes[1:] if one.settings["policy"] == policy]
            gap = gap_between([best(own, self.targets)], outcomes[:1], self.targets, policy)
            if own and gap.enough(self.within):
                return policy
        return None

    def stretched(self, factor: float) -> Round:
        return stretch(self.load, factor, self.problem.device.valid.context)

    def _near(self, policy: PolicyName) -> list[dict[str, Any]]:
        settings = dict(self.contenders[policy].settings)
        name = SIZE_SETTING[policy]
        size = settings[name]
        budget = int(self.problem.settings["max_num_batched_tokens"])
        sizes = {size} if name in self.problem.fixed else {max(2, size // 2), size, min(2 * size, budget)}
        return [{**settings, name: one} for one in sorted(sizes)]

    def cv(self, factor: float) -> float:
        return output_cv(self.stretched(factor))


def _towards_longer(look: _Look, recommended: PolicyName) -> Tail:
    low, high = 1.0, _reach(look)
    now = look.cv(1)
    if high <= low or look.enough(high, [recommended]) is not None:
        return Tail(None, None, high, now, None)
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if look.enough(middle, [recommended]) is not None else (low, middle)
    return Tail(high, "continuous", LONGEST, now, look.cv(high))


def _towards_equal(look: _Look) -> Tail:
    now, closed = look.cv(1), [policy for policy in look.contenders if policy != "continuous"]
    other = look.enough(0.0, closed)
    if other is None:
        return Tail(None, None, 0.0, now, None)
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        found = look.enough(middle, closed)
        low, high, other = (middle, high, found) if found is not None else (low, middle, other)
    return Tail(low, other, 0.0, now, look.cv(low))


def _reach(look: _Look) -> float:
    """As far as the longest answer may grow within the context."""
    requests = list(look.load.schedule)
    room = [
        (look.problem.device.valid.context - one.prompt_tokens) / one.output_tokens
        for one in _longest_first(requests)[: _tail_size(requests)]
    ]
    return min(LONGEST, *room)


def stretch(load: Round, factor: float, context: int) -> Round:
    """The same load with other lengths of answers.

    Args:
        load: as it is.
        factor: see the module.
        context: most tokens of prompt and answer together.
    """
    requests = list(load.schedule)
    if factor > 1:
        longer = {one.index for one in _longest_first(requests)[: _tail_size(requests)]}
        lengths = [one.output_tokens * (factor if one.index in longer else 1) for one in requests]
    else:
        mean = fmean(one.output_tokens for one in requests)
        lengths = [mean + factor * (one.output_tokens - mean) for one in requests]
    changed = [
        _with_output(one, min(max(1, round(length)), max(1, context - one.prompt_tokens)))
        for one, length in zip(requests, lengths, strict=True)
    ]
    return replace(load, schedule=Listed(load.schedule.load, changed))


def output_cv(load: Round) -> float:
    """Standard deviation over mean of the answers' lengths."""
    lengths = [one.output_tokens for one in load.schedule]
    return pstdev(lengths) / fmean(lengths)


def _tail_size(requests: Sequence[ScheduledRequest]) -> int:
    return max(1, len(requests) // SHARE)


def _longest_first(requests: Sequence[ScheduledRequest]) -> list[ScheduledRequest]:
    """Equal lengths in an order that has nothing to do with when they come, so that no clump of them is stretched."""
    return sorted(requests, key=lambda one: (-one.output_tokens, one.index * 2654435761 % 2**32))


def _with_output(request: ScheduledRequest, tokens: int) -> ScheduledRequest:
    exact = request.max_tokens == request.output_tokens
    return replace(request, output_tokens=tokens, max_tokens=tokens if exact else max(tokens, request.max_tokens))
