import pytest

from chairlift.advisor.evaluate.pool import Pool, Trial
from chairlift.core.errors import ConfigError
from tests.advisor.evaluate.making import problem, rounds


def test_processes_give_the_outcomes_of_one_in_order() -> None:
    """Nothing depends on who is done first."""
    load = rounds("arrivals=poisson arrivals.rate=8 prompt=50 output=20 count=12")
    asked = problem(load)
    trials = [Trial(asked, {"max_num_seqs": size}, load.first) for size in (1, 2, 3, 4, 5)]
    told: list[int] = []
    with Pool(1) as alone, Pool(2, told.append) as together:
        assert together.run(trials) == alone.run(trials)

    assert told == [1, 2, 3, 4, 5]
    assert alone.done == 5


def test_no_process_is_no_pool() -> None:
    """With the flag."""
    with pytest.raises(ConfigError, match="--workers is 0"):
        Pool(0)
