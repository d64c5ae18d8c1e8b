"""From a load, a device and limits to the settings of a policy, with the reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from chairlift.advisor.choose.search import SIZE_SETTING
from chairlift.advisor.evaluate.capacity import LARGEST, Capacity, capacities, compressed
from chairlift.advisor.evaluate.outcome import Outcome
from chairlift.advisor.evaluate.pool import Pool, Trial
from chairlift.advisor.evaluate.relief import Relief, reliefs
from chairlift.advisor.evaluate.rounds import Round, Rounds
from chairlift.advisor.evaluate.run import Problem
from chairlift.advisor.evaluate.targets import CAPACITY, Targets
from chairlift.advisor.tune.neighbours import SAME, Sensitivity, beside, sensitivities
from chairlift.advisor.tune.searching import Budget, Found, search_space
from chairlift.advisor.tune.space import Space, defaults, space_of
from chairlift.core.config import PolicyName, SchedulerConfig
from chairlift.core.errors import ChairliftError, ConfigError
from chairlift.core.extremes import find_extremes

BEST: Final = 3
"""Settings that are lived through on every round after the search."""
_STRESS: Final = 1.25
"""The rate that is searched on, over what the defaults can take, where capacity is the target."""
_NOTHING: Final = 0.001
"""Shares of the objective below this are no difference."""
_POLISH: Final = 3
"""So many times a neighbour of the winner that is better takes its place: a search of few trials ends near the best."""


@dataclass(frozen=True, slots=True)
class Tried:
    """Settings on every round."""

    settings: Mapping[str, Any]
    outcomes: tuple[Outcome, ...]
    capacity: Capacity | None = None
    """Where that is the target."""

    def rank(self, targets: Targets) -> tuple[int, float]:
        """The larger the better: as the worst rounds allow, then by the mean over rounds; or by capacity."""
        if self.capacity is not None:
            return (2 if min(self.capacity.factors) >= 1 else 1, self.capacity.rate)
        ranks = [targets.rank(one) for one in self.outcomes]
        worst = min(rank for rank, _ in ranks)
        several = [value for rank, value in ranks if rank == worst]
        return (worst, sum(several) / len(several))

    def mean(self, targets: Targets) -> float | None:
        """The objective's mean over rounds; None where one has none."""
        if self.capacity is not None:
            return self.capacity.rate
        values = [None if one.figures is None else targets.value(one.figures) for one in self.outcomes]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if len(known) == len(values) else None

    @property
    def runs(self) -> bool:
        return all(one.figures is not None for one in self.outcomes)


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was asked, and the answer."""

    problem: Problem
    load: Rounds
    targets: Targets
    space: Space
    found: Found
    best: tuple[Tried, ...]
    """By rank over all rounds, the winner first."""
    default: Tried
    """What SchedulerConfig's own values come to."""
    parameters: tuple[Sensitivity, ...]
    reliefs: tuple[Relief, ...]
    warning: str
    """Most sequences and greatest length at once, if the pool does not hold both; or empty."""

    @property
    def winner(self) -> Tried:
        return self.best[0]

    @property
    def limits_met(self) -> bool:
        """In every round."""
        return self.winner.rank(self.targets)[0] == 2

    def to_json(self) -> dict[str, Any]:
        """Plain values; times in seconds, settings by name."""
        return {
            "device": self.problem.device.name,
            "device_kind": self.problem.device.provenance.kind,
            "policy": self.space.policy,
            "targets": asdict(self.targets),
            "load": {"rounds": len(self.load.rounds), "requests": len(self.load.first.schedule)},
            "shared_settings": dict(self.problem.settings),
            "settings": dict(self.winner.settings),
            "limits_met": self.limits_met,
            "best": [_plain(one) for one in self.best],
            "default": _plain(self.default),
            "parameters": [asdict(one) | {"binding": one.binding} for one in self.parameters],
            "reliefs": [asdict(one) for one in self.reliefs],
            "search": asdict(self.found) | {"best": [dict(one) for one in self.found.best[:BEST]]},
            "warning": self.warning,
        }


def tune(
    pool: Pool, problem: Problem, load: Rounds, targets: Targets, policy: PolicyName, budget: Budget | None = None
) -> Tuned:
    """Search, live through every round with the best few and with the defaults, vary each parameter.

    Raises:
        ConfigError: nothing is left to tune, or the storage cannot be used.
    """
    space = space_of(problem, load, policy)
    start = defaults(problem, policy)
    work = _Work(pool, problem, load, targets)
    stressed = work.stressed(start)
    found = search_space(pool, problem, stressed, targets, space, budget or Budget(), _beginnings(start, space))
    # The defaults themselves win where nothing that was found is better over all rounds.
    (default,) = work.everywhere([start])
    hint = None if default.capacity is None else default.capacity.factor or None
    tried = [default, *work.everywhere(found.best[:BEST], hint)]
    parameters: list[Sensitivity] = []
    for _ in range(_POLISH):
        best = _ranked(tried, targets)
        parameters = work.neighbours(best[0], space)
        better = _better(parameters, best[0].settings, space)
        if better is None or any(one.settings == better for one in tried):
            break
        tried += work.everywhere([better], hint)
        if _ranked(tried, targets)[0] is not tried[-1]:
            break
    best = _ranked(tried, targets)
    smaller = work.trimmed(best[0], space, hint)
    if smaller is not best[0]:
        best = (smaller, *best[: BEST - 1])
        parameters = work.neighbours(smaller, space)
    figures = best[0].outcomes[0].figures
    relieved = () if figures is None else tuple(reliefs(pool, problem, best[0].settings, load.first, figures))
    warning = _warning(problem, best[0].settings)
    return Tuned(problem, load, targets, space, found, best, default, tuple(parameters), relieved, warning)


@dataclass(frozen=True, slots=True)
class _Work:
    """What is run for one question."""

    pool: Pool
    problem: Problem
    load: Rounds
    targets: Targets

    def stressed(self, start: Mapping[str, Any]) -> Rounds:
        """The load that is searched on: as it is, or where capacity is the target, somewhat faster than the defaults
        can take it, so that limits tell settings apart.
        """
        if self.targets.objective != CAPACITY:
            return self.load
        if not self.load.has_a_rate:
            raise ConfigError(
                "--target capacity raises the rate of the load, and this one has none: its requests are there at once "
                "or wait for answers. Use --target throughput."
            )
        known = capacities(self.pool, self.problem, [start], self.load.rounds[:1], self.targets)[0].factor
        return replace(self.load, rounds=(compressed(self.load.first, _STRESS * max(known, 1 / LARGEST)),))

    def everywhere(self, several: Sequence[Mapping[str, Any]], hint: float | None = None) -> list[Tried]:
        """On every round; capacities are looked for near a hint."""
        rounds = self.load.rounds
        outcomes = iter(self.pool.run(Trial(self.problem, one, each) for one in several for each in rounds))
        tried = [Tried(settings, tuple(next(outcomes) for _ in rounds)) for settings in several]
        if self.targets.objective != CAPACITY:
            return tried
        found = capacities(self.pool, self.problem, several, rounds, self.targets, hint)
        return [replace(one, capacity=capacity) for one, capacity in zip(tried, found, strict=True)]

    def trimmed(self, one: Tried, space: Space, hint: float | None) -> Tried:
        """The same with fewer sequences at once, as few as make no difference: more than that only promises memory."""
        size = SIZE_SETTING[space.policy]
        if size in self.problem.fixed or not one.runs or one.settings == defaults(self.problem, space.policy):
            return one
        load = self._at_capacity(one)
        before, settings = self.pool.run([Trial(self.problem, one.settings, load)])[0], one.settings
        while settings[size] > 1:
            fewer = {**settings, size: settings[size] // 2}
            (outcome,) = self.pool.run([Trial(self.problem, fewer, load)])
            if not _as_good(self.targets.rank(outcome), self.targets.rank(before)):
                break
            settings = fewer
        if settings == one.settings:
            return one
        (again,) = self.everywhere([settings], hint)
        return again if _as_good(again.rank(self.targets), one.rank(self.targets)) else one

    def _at_capacity(self, one: Tried) -> Round:
        """The first round, as fast as these settings can take it where capacity is the target."""
        factor = 0.0 if one.capacity is None else one.capacity.factors[0]
        return compressed(self.load.first, factor or 1.0)

    def neighbours(self, one: Tried, space: Space) -> list[Sensitivity]:
        """Half and double of each parameter, on the first round, as fast as it can be taken."""
        load, chosen = self._at_capacity(one), one.outcomes[0]
        if load is not self.load.first:
            chosen = self.pool.run([Trial(self.problem, one.settings, load)])[0]
        if chosen.figures is None:
            return []
        names = _shown(space, self.problem, one.settings)
        return sensitivities(self.pool, self.problem, load, self.targets, chosen, names)


def _as_good(one: tuple[int, float], other: tuple[int, float]) -> bool:
    """Whether a rank is no worse than another, but for a difference that nobody would notice."""
    return one[0] == other[0] and one[1] >= other[1] - _NOTHING * abs(other[1])


def _ranked(tried: Sequence[Tried], targets: Targets) -> tuple[Tried, ...]:
    """The best few; of equals those that were tried first."""
    return tuple(sorted(tried, key=lambda one: one.rank(targets), reverse=True)[:BEST])


def _better(parameters: Sequence[Sensitivity], settings: Mapping[str, Any], space: Space) -> dict[str, Any] | None:
    """The settings with the one neighbour that gains most; None where none gains."""
    searched = {one.name for one in space.parameters}
    gains = {
        (one.name, change.value): change.objective
        for one in parameters
        for change in (one.half, one.double)
        if one.name in searched and change is not None and change.allowed and (change.objective or 0.0) > SAME
    }
    if not gains:
        return None
    name, value = max(gains, key=lambda key: gains[key] or 0.0)
    return beside(settings, name, value)


def _beginnings(start: Mapping[str, Any], space: Space) -> list[Mapping[str, Any]]:
    """The defaults, and the same with a few sizes: what a person would try first."""
    size = SIZE_SETTING[space.policy]
    values = next((one.values for one in space.parameters if one.name == size), ())
    return [start, *({**start, size: value} for value in values[3::4])]


def _shown(space: Space, problem: Problem, settings: Mapping[str, Any]) -> list[str]:
    """Parameters whose neighbours are told: those searched, and what the mission of tuning asks beside."""
    config = problem.config(settings)
    names = [one.name for one in space.parameters if one.name not in ("preferred", "enable_chunked_prefill")]
    if space.policy == "continuous" and config.max_num_batched_tokens >= config.max_model_len:
        names.append("enable_chunked_prefill")
    if problem.device.memory is not None and not {"num_kv_blocks", "kv_cache_memory"} & problem.fixed:
        names.append("gpu_memory_utilization")
    return [*names, "max_model_len"]


def _warning(problem: Problem, settings: Mapping[str, Any]) -> str:
    config: SchedulerConfig = problem.config(settings)
    try:
        capacity = problem.simulator(settings).runner(problem.device, config).capacity()
    except ChairliftError:
        return ""
    found = find_extremes(config, capacity)
    return "" if found is None else str(found)


def _plain(one: Tried) -> dict[str, Any]:
    capacity = None if one.capacity is None else asdict(one.capacity)
    return {
        "settings": dict(one.settings),
        "capacity": capacity,
        "rounds": [outcome.to_json() for outcome in one.outcomes],
    }
