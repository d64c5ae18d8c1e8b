from chairlift.advisor.evaluate.capacity import LARGEST, capacities, compressed, rate_of
from chairlift.advisor.evaluate.pool import Pool, Trial
from chairlift.advisor.evaluate.targets import Targets
from tests.advisor.evaluate.making import problem, rounds

LOAD = rounds("arrivals=constant arrivals.rate=2 prompt=20 output=10 count=30")
TURNS = rounds("arrivals=constant arrivals.rate=2 prompt=20 output=10 count=12 sessions.turns=3 sessions.think=1s")
S = 1_000_000_000


def test_the_same_requests_come_faster() -> None:
    """In the same order; think times stay."""
    faster = compressed(LOAD.first, 4)
    turns = compressed(TURNS.first, 4)

    assert rate_of(LOAD.first) == 2
    assert rate_of(faster) == 8
    assert [one.prompt_tokens for one in faster.schedule] == [one.prompt_tokens for one in LOAD.first.schedule]
    assert compressed(LOAD.first, 1) is LOAD.first
    before, after = list(TURNS.first.schedule)[1], list(turns.schedule)[1]
    assert before == after


def test_limits_hold_at_the_factor_found_and_not_a_little_above() -> None:
    """For each of several settings at once."""
    targets = Targets(e2e_p99=S // 2)
    asked = problem(LOAD, targets)
    several = [{"max_num_seqs": 1}, {"max_num_seqs": 16}]
    with Pool(1) as pool:
        found = capacities(pool, asked, several, LOAD.rounds, targets)
        for settings, capacity in zip(several, found, strict=True):
            factor = capacity.factors[0]
            held, broken = pool.run(
                Trial(asked, settings, compressed(LOAD.first, one)) for one in (factor, 1.1 * factor)
            )
            assert targets.meets(held)
            assert not targets.meets(broken)
            assert capacity.rate == 2 * capacity.factor
    assert found[1].factor > 2 * found[0].factor


def test_it_is_looked_for_within_bounds() -> None:
    """A limit that always holds, and one that never does."""
    with Pool(1) as pool:
        easy, hard = (
            capacities(pool, problem(LOAD, targets), [{}], LOAD.rounds, targets)[0]
            for targets in (Targets(e2e_p99=10_000 * S), Targets(e2e_p99=1000))
        )
    assert easy.factor == LARGEST
    assert hard.factor == hard.rate == 0
