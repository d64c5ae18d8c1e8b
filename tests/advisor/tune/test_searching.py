from pathlib import Path
from typing import Any

import pytest

from chairlift.advisor.evaluate.pool import Pool
from chairlift.advisor.evaluate.run import evaluate
from chairlift.advisor.evaluate.targets import Targets
from chairlift.advisor.tune.searching import Budget, Found, search_space
from chairlift.advisor.tune.space import defaults, space_of
from chairlift.core.errors import ConfigError
from tests.advisor.evaluate.making import problem, rounds

LOAD = rounds("arrivals=burst arrivals.size=24 prompt=20 output=10")
MS = 1_000_000


def search(workers: int = 1, targets: Targets | None = None, budget: Budget | None = None, **given: Any) -> Found:
    """Continuous, on the toy device."""
    targets = targets or Targets()
    asked = problem(LOAD, targets, **given)
    space = space_of(asked, LOAD, "continuous")
    with Pool(workers) as pool:
        return search_space(
            pool, asked, LOAD, targets, space, budget or Budget(trials=12), [defaults(asked, "continuous")]
        )


def test_the_result_depends_on_the_seed_alone() -> None:
    """Not on the number of processes."""
    assert search(1) == search(2)
    assert search(budget=Budget(trials=12, seed=1)) != search()


def test_a_stored_search_goes_on(tmp_path: Path) -> None:
    """It knows what was tried, and tries other settings; of another question it is refused."""
    storage = tmp_path / "deep" / "search.log"
    first = search(budget=Budget(trials=8, storage=storage))
    again = search(budget=Budget(trials=8, storage=storage))

    assert (first.trials, first.resumed) == (8, 0)
    assert (again.trials, again.resumed) == (16, 8)
    assert len(again.best) > len(first.best)
    with pytest.raises(ConfigError, match="holds a search for another"):
        search(targets=Targets("p99-e2e"), budget=Budget(trials=8, storage=storage))


def test_a_storage_that_is_none_is_refused(tmp_path: Path) -> None:
    """Named."""
    with pytest.raises(ConfigError, match="--storage"):
        search(budget=Budget(storage=tmp_path))


def test_limits_are_learned() -> None:
    """What breaks them is counted and never first."""
    targets = Targets(itl_p99=22 * MS)  # 20 ms a step, a millisecond for each sequence above 20
    found = search(targets=targets, budget=Budget(trials=24))

    assert found.broke_limits > 0
    assert targets.meets(evaluate(problem(LOAD, targets), found.best[0], LOAD.first))


def test_refusals_are_learned() -> None:
    """A pool that holds one sequence: everything that runs is as good, what does not is counted by kind."""
    found = search(num_kv_blocks=2, kv_reservation="full", max_queued_requests=3)

    assert found.refusals == {"load_does_not_fit": 12}


def test_no_trial_is_no_search() -> None:
    """With the flag."""
    with pytest.raises(ConfigError, match="--trials is 0"):
        Budget(trials=0)
