"""Each policy's best settings on a load, by a short search on the simulator: sizes first, then what goes with them.

Static has no timer here: with one (--max-wait) it is dynamic batching. Batches of one are no batching, so sizes start
at two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chairlift.advisor.evaluate.outcome import Outcome
from chairlift.advisor.evaluate.pool import Pool, Trial
from chairlift.advisor.evaluate.rounds import Rounds
from chairlift.advisor.evaluate.run import Problem
from chairlift.advisor.evaluate.targets import Targets
from chairlift.core.config import POLICIES, PolicyName

SIZES: Final = (2, 8, 32, 128, 512)
"""batch_size, max_batch_size and max_num_seqs that are tried first, as far as load, device and step budget allow; then
half and twice the best of them."""
DELAYS: Final = (0, 5_000_000, 20_000_000, 50_000_000, 200_000_000, 1_000_000_000)
"""ns: max_queue_delay that are tried at the best size without a delay."""
BUDGETS: Final = (512, 2048, 8192)
"""max_num_batched_tokens that are tried at the best size; more rows than tokens cannot be."""
SIZE_SETTING: Final[Mapping[PolicyName, str]] = {
    "static": "batch_size",
    "dynamic": "max_batch_size",
    "continuous": "max_num_seqs",
}


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy with its best settings."""

    policy: PolicyName
    settings: Mapping[str, Any]
    """policy included."""
    outcomes: tuple[Outcome, ...]
    """One for each round."""
    tried: tuple[Outcome, ...]
    """What was looked at on the first round to find them."""

    def values(self, targets: Targets) -> list[float] | None:
        """The objective's in each round; None where one round has none."""
        found = [None if one.figures is None else targets.value(one.figures) for one in self.outcomes]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else None

    def meets(self, targets: Targets) -> bool:
        """Whether every limit holds in every round."""
        return all(targets.meets(one) for one in self.outcomes)

    def rank(self, targets: Targets) -> tuple[int, float]:
        """The larger the better: as its worst rounds allow, then by the mean over rounds."""
        ranks = [targets.rank(one) for one in self.outcomes]
        worst = min(rank for rank, _ in ranks)
        several = [value for rank, value in ranks if rank == worst]
        return (worst, sum(several) / len(several))


def search(pool: Pool, problem: Problem, load: Rounds, targets: Targets) -> dict[PolicyName, Contender]:
    """The best of each policy.

    Sizes are tried on the first round; then the delays or step budgets at the best size; the best of each policy is
    lived through on every round.
    """
    tried: dict[PolicyName, list[Outcome]] = {policy: [] for policy in POLICIES}
    sized = [_sized(policy, size) for policy in POLICIES for size in _sizes(problem, load, policy)]
    _try(pool, problem, load, sized, tried)
    near = [
        _sized(policy, size)
        for policy in POLICIES
        for size in _around(best(tried[policy], targets), policy, problem, load)
    ]
    _try(pool, problem, load, near, tried)
    beside = [
        settings
        for policy in POLICIES
        for settings in _beside(policy, best(tried[policy], targets).settings, problem, load)
    ]
    _try(pool, problem, load, beside, tried)
    finals = {policy: best(several, targets) for policy, several in tried.items()}
    trials = [Trial(problem, one.settings, again) for one in finals.values() for again in load.rounds[1:]]
    outcomes = iter(pool.run(trials))
    return {
        policy: Contender(policy, one.settings, (one, *(next(outcomes) for _ in load.rounds[1:])), tuple(tried[policy]))
        for policy, one in finals.items()
    }


def best(outcomes: Sequence[Outcome], targets: Targets) -> Outcome:
    """The first of the best."""
    return max(outcomes, key=targets.rank)


def _try(
    pool: Pool,
    problem: Problem,
    load: Rounds,
    several: Sequence[Mapping[str, Any]],
    tried: Mapping[PolicyName, list[Outcome]],
) -> None:
    for outcome in pool.run([Trial(problem, settings, load.first) for settings in several]):
        tried[outcome.settings["policy"]].append(outcome)


def _sized(policy: PolicyName, size: int) -> dict[str, Any]:
    settings: dict[str, Any] = {"policy": policy, SIZE_SETTING[policy]: size}
    return settings | {"max_queue_delay": 0} if policy == "dynamic" else settings


def _sizes(problem: Problem, load: Rounds, policy: PolicyName) -> list[int]:
    """Sizes that can make a difference: not above what can ever be there together, nor a step's rows or tokens."""
    if SIZE_SETTING[policy] in problem.fixed:
        return [int(problem.settings[SIZE_SETTING[policy]])]
    most = _most(problem, load, policy)
    return [*(size for size in SIZES if size < most), *([most] if most <= SIZES[-1] else [])]


def _around(found: Outcome, policy: PolicyName, problem: Problem, load: Rounds) -> list[int]:
    """Half and twice the best of SIZES."""
    if SIZE_SETTING[policy] in problem.fixed:
        return []
    size, known = int(found.settings[SIZE_SETTING[policy]]), _sizes(problem, load, policy)
    return [one for one in (size // 2, 2 * size) if 2 <= one <= _most(problem, load, policy) and one not in known]


def _most(problem: Problem, load: Rounds, policy: PolicyName) -> int:
    budget = int(problem.settings["max_num_batched_tokens"])
    return max(2, min(load.most_at_once(policy), problem.device.valid.rows, budget))


def _beside(
    policy: PolicyName, settings: Mapping[str, Any], problem: Problem, load: Rounds
) -> Iterator[dict[str, Any]]:
    """What is tried at a policy's best size."""
    if policy == "dynamic" and not load.offline and "max_queue_delay" not in problem.fixed:
        yield from ({**settings, "max_queue_delay": delay} for delay in DELAYS if delay)
    if "max_num_batched_tokens" not in problem.fixed:
        now = problem.config(settings)
        most = problem.device.valid.tokens
        for budget in BUDGETS:
            if budget != now.max_num_batched_tokens and now.max_rows <= budget <= most:
                yield {**settings, "max_num_batched_tokens": budget}
