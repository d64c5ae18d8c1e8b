from chairlift.advisor.choose.search import search
from chairlift.advisor.evaluate.pool import Pool
from chairlift.advisor.evaluate.targets import Targets
from chairlift.core.config import POLICIES
from tests.advisor.evaluate.making import problem, rounds

ONLINE = "arrivals=poisson arrivals.rate=4 prompt=40 output=exponential output.mean=12 output.cap=60 count=24"


def test_each_policy_is_at_its_best_of_what_was_tried() -> None:
    """On the first round; and it is lived through on every round."""
    load = rounds(ONLINE, count=2)
    targets = Targets("mean-e2e")
    with Pool(1) as pool:
        found = search(pool, problem(load, targets), load, targets)

    assert set(found) == set(POLICIES)
    for policy, one in found.items():
        assert one.settings["policy"] == policy
        assert len(one.outcomes) == 2
        assert all(outcome.settings["policy"] == policy for outcome in one.tried)
        assert targets.rank(one.outcomes[0]) == max(map(targets.rank, one.tried))
        values = one.values(targets)
        assert values is not None
        assert len(values) == 2


def test_batches_of_one_are_no_batches() -> None:
    """Nor does static have a timer, which would make it dynamic."""
    load = rounds(ONLINE)
    with Pool(1) as pool:
        found = search(pool, problem(load), load, Targets("mean-e2e"))

    assert min(one.settings["batch_size"] for one in found["static"].tried) == 2
    assert not any("max_wait" in one.settings for one in found["static"].tried)


def test_what_the_user_has_decided_is_not_searched() -> None:
    """Size, delay and step budget stay."""
    load = rounds(ONLINE)
    with Pool(1) as pool:
        asked = problem(load, max_num_seqs=3, max_batch_size=5, max_queue_delay=7, max_num_batched_tokens=100)
        found = search(pool, asked, load, Targets("mean-e2e"))

    assert {one.settings["max_num_seqs"] for one in found["continuous"].tried} == {3}
    assert {one.settings["max_batch_size"] for one in found["dynamic"].tried} == {5}
    assert not any("max_num_batched_tokens" in one.settings for one in found["continuous"].tried)


def test_no_size_is_tried_that_cannot_fill() -> None:
    """A closed loop of six users never has seven requests."""
    load = rounds("arrivals=closed arrivals.users=6 prompt=40 output=12 count=24")
    with Pool(1) as pool:
        found = search(pool, problem(load), load, Targets())

    assert max(one.settings["batch_size"] for one in found["static"].tried) == 6
    assert max(one.settings["max_num_seqs"] for one in found["continuous"].tried) == 6
