"""Runs the three policies on one load, taking turns, and keeps everything in a study's folder.

Static and dynamic run with the batch size that suits the load best: a short search goes first and is in the record.
Rounds follow: each draws the load anew (seed + round), runs it once under each policy in a shuffled order (seeded too),
and counts as one pair for every comparison.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from chairlift.core.config import POLICIES, PolicyName
from chairlift.core.errors import ConfigError
from chairlift.lab.compare.fairness import SortedSchedule, after_runs, before_runs, offline
from chairlift.lab.loads.arrivals import ClosedLoop
from chairlift.lab.loads.describe import Description, describe
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.loads.transcripts import CountTokens
from chairlift.lab.measured import Measured
from chairlift.lab.studies.folder import Column
from chairlift.lab.studies.study import Study, policy_settings
from chairlift.lab.studies.words import number, seconds

SIZES: Final = (4, 8, 16, 32)
QUICK_SIZES: Final = (4, 16)
_CLOSE: Final = 0.03
"""Batch sizes whose throughput is this close to the best are told apart by their mean latency."""


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """How much is run.

    Raises:
        ConfigError: a number is below 1.
    """

    repeats: int = 3
    """Rounds: runs of each policy."""
    sizes: tuple[int, ...] = SIZES
    """Batch sizes that are tried for static and dynamic; a single one is taken as it is."""
    widen: bool = True
    """Where the largest size is the best, go on with twice that."""
    seed: int = 0
    """Of the order in which the policies run."""

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise ConfigError(f"--repeats is {self.repeats}; at least one round is needed.")
        if not self.sizes or min(self.sizes) < 1:
            raise ConfigError("--sizes needs batch sizes of at least 1, such as 4,8,16.")


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy as it runs."""

    policy: PolicyName
    size: int
    """batch_size, max_batch_size or max_num_seqs."""
    settings: Mapping[str, Any]

    @property
    def label(self) -> str:
        return self.policy


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was run, and what came of it."""

    load: Load
    described: Description
    offline: bool
    """Everything is there at one instant: static got it sorted, and nobody waits for a first token."""
    contenders: tuple[Contender, ...]
    runs: Mapping[PolicyName, Sequence[Measured]]
    """By policy, one for each round."""
    unfair: tuple[str, ...]
    """What makes this comparison unfair or empty."""

    def values(self, policy: PolicyName, metric: str, which: str | float) -> list[float | None]:
        """A client's figure in each round."""
        return [one.figure(metric, which) for one in self.runs[policy]]

    def rates(self, policy: PolicyName) -> list[float | None]:
        """Output tokens a second in each round."""
        return [one.tokens_per_second for one in self.runs[policy]]


async def run_comparison(
    study: Study, load: Load, options: CompareOptions, count_tokens: CountTokens | None = None
) -> Comparison:
    """Search, take turns, look for what is unfair.

    Raises:
        ConfigError: the subject's settings cannot be changed, or the load cannot be run.
        Interrupted: it was asked to end.
    """
    described = describe(Schedule(load, count_tokens))
    sort = offline(load)
    shared = study.subject.config(policy_settings("continuous") | study.settings)
    if shared is None:
        raise ConfigError(f"{study.subject.name} does not say what its settings are: nothing can be compared.")
    most = _largest(load, described, shared.max_num_batched_tokens)
    sizes = sorted({min(size, most) for size in options.sizes})
    candidates: dict[PolicyName, list[Contender]] = {
        policy: [_contender(policy, size) for size in sizes] for policy in POLICIES if policy != "continuous"
    }
    continuous = Contender("continuous", shared.max_num_seqs, policy_settings("continuous"))
    everyone = [continuous, *(one for several in candidates.values() for one in several)]
    study.subject.prepare([study.settings | dict(one.settings) for one in everyone])

    def schedule(policy: PolicyName, offset: int) -> Schedule:
        drawn = replace(load, seed=load.seed + offset)
        kind = SortedSchedule if sort and policy == "static" else Schedule
        return kind(drawn, count_tokens)

    chosen: list[Contender] = []
    searched: list[tuple[Contender, Measured]] = []
    for policy, several in candidates.items():
        tried: list[tuple[Contender, Measured]] = []
        waiting = list(several) if len(several) > 1 else []
        while waiting:
            one = waiting.pop(0)
            tried.append((one, await study.run(f"search {policy} {one.size}", schedule(policy, 0), one.settings)))
            # The best at the edge of what was tried is not known to be the best.
            if not waiting and options.widen and best_of(tried) is one and 2 * one.size <= most:
                waiting.append(_contender(policy, 2 * one.size))
        searched += tried
        chosen.append(best_of(tried) if tried else several[0])
    contenders = (*chosen, continuous)
    draw = random.Random(options.seed)
    runs: dict[PolicyName, list[Measured]] = {one.policy: [] for one in contenders}
    for number_ in range(options.repeats):
        order = list(contenders)
        draw.shuffle(order)
        for one in order:
            label = f"{one.policy} {number_ + 1}"
            runs[one.policy].append(await study.run(label, schedule(one.policy, number_ + 1), one.settings))
    _table_of_search(study, searched, chosen)
    unfair = (*before_runs(load, described, shared), *after_runs(runs))
    return Comparison(load, described, sort, contenders, runs, unfair)


def best_of(tried: Sequence[tuple[Contender, Measured]]) -> Contender:
    """The one that gives most output tokens a second; of those within 3% of it, the one with the least mean latency.

    Raises:
        ConfigError: nothing was answered under any of them.
    """
    rates = {one.size: run.tokens_per_second or 0.0 for one, run in tried}
    best = max(rates.values())
    if not best:
        raise ConfigError(
            f"nothing was answered under {tried[0][0].policy} batching with any size: see the runs' failures."
        )
    close = [(one, run) for one, run in tried if rates[one.size] >= (1 - _CLOSE) * best]
    return min(close, key=lambda pair: pair[1].figure("end_to_end_from_schedule", "mean") or float("inf"))[0]


def _contender(policy: PolicyName, size: int) -> Contender:
    return Contender(policy, size, policy_settings(policy, size))


def _largest(load: Load, described: Description, budget: int) -> int:
    """The largest batch that can fill: not above the users of a closed loop, the requests there are, or a step's
    tokens.
    """
    most = min(described.requests if described.complete else budget, budget)
    if isinstance(load.arrivals, ClosedLoop):
        most = min(most, load.arrivals.users)
    return most


def _table_of_search(study: Study, searched: Sequence[tuple[Contender, Measured]], chosen: Sequence[Contender]) -> None:
    if not searched:
        return
    study.table(
        "search",
        "The batch sizes that were tried for the closed policies, one run each.",
        (
            Column("policy"),
            Column("size", label="batch size"),
            Column("rate", "tokens/s", "output"),
            Column("latency", "s", "mean end to end"),
            Column("chosen"),
        ),
        [
            (
                one.policy,
                one.size,
                run.tokens_per_second,
                run.figure("end_to_end_from_schedule", "mean"),
                "yes" if one in chosen else "",
            )
            for one, run in searched
        ],
        x="size",
        y="rate",
        series="policy",
    )
    for one in chosen:
        tried = [(c, run) for c, run in searched if c.policy == one.policy]
        if tried:
            found = next(run for c, run in tried if c is one)
            study.sentence(
                f"{one.policy} runs with batches of {one.size}, the best of "
                f"{', '.join(str(c.size) for c, _ in tried)} on this load: "
                f"{number(found.tokens_per_second)} output tokens/s, "
                f"{seconds(found.figure('end_to_end_from_schedule', 'mean'))} end to end on average."
            )
