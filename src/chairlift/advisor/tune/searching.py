"""The search: Optuna's tree-structured Parzen estimator on the simulator.

Trials are asked for in batches of a fixed size and told in the order asked, so that the result depends on the seed and
on nothing else: not on the number of cores, nor on who is done first. What cannot run and what breaks a limit is told
as a constraint, so that the sampler learns where not to look.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import optuna
from optuna.distributions import IntDistribution
from optuna.samplers import TPESampler
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend

from chairlift.advisor.evaluate.outcome import Outcome, Refusal
from chairlift.advisor.evaluate.pool import Pool, Trial
from chairlift.advisor.evaluate.rounds import Rounds
from chairlift.advisor.evaluate.run import Problem
from chairlift.advisor.evaluate.targets import Targets
from chairlift.advisor.tune.space import Space
from chairlift.core.errors import ConfigError

TRIALS: Final = 60
"""Simulations of a search, unless told otherwise."""
BATCH: Final = 4
"""Trials asked for before the first of them is told. Fixed, so that cores do not change the result."""
_REFUSED: Final = 10.0
"""Stands for the violation of what does not run."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much is searched.

    Raises:
        ConfigError: nothing would be.
    """

    trials: int = TRIALS
    seed: int = 0
    storage: Path | None = None
    """Where trials are kept, so that a second search goes on where the first ended. None: nowhere."""

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ConfigError(f"--trials is {self.trials}; at least one is needed.")


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has seen."""

    best: tuple[Mapping[str, Any], ...]
    """Settings by rank, the best first, no two alike."""
    trials: int
    """Trials in the study, those of earlier searches included."""
    resumed: int
    """Of these, from earlier searches."""
    refusals: Mapping[str, int]
    """Trials that did not run, by kind."""
    broke_limits: int
    """Trials that ran and broke a limit."""


def search_space(
    pool: Pool,
    problem: Problem,
    load: Rounds,
    targets: Targets,
    space: Space,
    budget: Budget,
    first: Sequence[Mapping[str, Any]] = (),
) -> Found:
    """Search.

    Args:
        pool: runs the trials.
        problem: device and what is decided.
        load: its first round is searched on.
        targets: what is to be best.
        space: what is searched.
        budget: how much.
        first: settings to begin with, such as the defaults.

    Raises:
        ConfigError: the storage holds a search of another kind, or cannot be used.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study, known = _study(_mark(problem, load, targets, space), budget)
    distributions: dict[str, Any] = {one.name: IntDistribution(0, len(one.values) - 1) for one in space.parameters}
    if not known:
        for settings in first:
            study.enqueue_trial(space.places(settings), skip_if_exists=True)
    seen: dict[str, Outcome] = {}
    left = budget.trials
    while left > 0:
        asked = [study.ask(distributions) for _ in range(min(BATCH, left))]
        left -= len(asked)
        settings_of = [space.settings(one.params) for one in asked]
        new = {_key(one): one for one in settings_of if _key(one) not in seen}
        outcomes = pool.run(Trial(problem, one, load.first) for one in new.values())
        seen |= dict(zip(new, outcomes, strict=True))
        for trial, settings in zip(asked, settings_of, strict=True):
            _tell(study, trial, seen[_key(settings)], targets)
    return _found(study, space, known)


def _study(mark: str, budget: Budget) -> tuple[optuna.Study, int]:
    """The study, and how many trials it had."""
    storage: BaseStorage = InMemoryStorage()
    if budget.storage is not None:
        budget.storage.parent.mkdir(parents=True, exist_ok=True)
        try:
            storage = JournalStorage(JournalFileBackend(str(budget.storage)))
        except (OSError, ValueError) as error:
            raise ConfigError(f"--storage {budget.storage} cannot be used: {error}.") from error
        others = [one for one in optuna.get_all_study_names(storage) if one != mark]
        if others:
            raise ConfigError(
                f"--storage {budget.storage} holds a search for another load, device, target or set of given settings: "
                "name another file."
            )
    study = optuna.create_study(study_name=mark, storage=storage, direction="maximize", load_if_exists=True)
    known = len(study.trials)
    # A resumed search must not draw what the first one drew.
    study.sampler = TPESampler(seed=budget.seed + known, multivariate=True, n_startup_trials=3 * BATCH)
    return study, known


def _tell(study: optuna.Study, trial: optuna.Trial, outcome: Outcome, targets: Targets) -> None:
    figures, refusal = outcome.figures, outcome.refusal
    value = None if figures is None else targets.value(figures)
    violation = _REFUSED if figures is None or value is None else targets.violation(figures) - 1
    trial.set_constraint("limits", violation if targets.objective != "goodput" or figures is None else -1.0)
    rank, score = targets.rank(outcome)
    trial.set_user_attr("rank", [rank, score])
    if refusal is not None:
        trial.set_user_attr("refusal", {"kind": refusal.kind, "message": refusal.message})
    study.tell(trial, 0.0 if value is None else score if rank == 2 else value if targets.higher_is_better else -value)


def _found(study: optuna.Study, space: Space, known: int) -> Found:
    trials = [one for one in study.trials if "rank" in one.user_attrs]
    # Of equals the first tried comes first: the defaults, if they are as good.
    ordered = sorted(trials, key=lambda one: (-one.user_attrs["rank"][0], -one.user_attrs["rank"][1], one.number))
    best: dict[str, Mapping[str, Any]] = {}
    for one in ordered:
        settings = space.settings(one.params)
        best.setdefault(_key(settings), settings)
    refusals: dict[str, int] = {}
    for one in trials:
        if "refusal" in one.user_attrs:
            kind = str(Refusal(**one.user_attrs["refusal"]).kind)
            refusals[kind] = refusals.get(kind, 0) + 1
    broke = sum(one.user_attrs["rank"][0] == 1 for one in trials)
    return Found(tuple(best.values()), len(trials), known, refusals, broke)


def _key(settings: Mapping[str, Any]) -> str:
    return json.dumps(dict(sorted(settings.items())), default=str)


def _mark(problem: Problem, load: Rounds, targets: Targets, space: Space) -> str:
    """Equal for searches that may go on from one another."""
    about = {
        "device": asdict(problem.device.step) | asdict(problem.device.host) | {"name": problem.device.name},
        "settings": dict(problem.settings),
        "targets": asdict(targets),
        "space": asdict(space),
        "load": [(str(one.start), one.prompt_tokens, one.output_tokens) for one in load.first.schedule],
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:16]
