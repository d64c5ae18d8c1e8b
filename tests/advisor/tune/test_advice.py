import json
from typing import Any

import pytest

from chairlift.advisor.evaluate.pool import Pool
from chairlift.advisor.evaluate.targets import CAPACITY, Targets
from chairlift.advisor.tune.advice import Tuned, _Work, tune
from chairlift.advisor.tune.report import tuned_lines
from chairlift.advisor.tune.searching import Budget
from chairlift.advisor.tune.space import space_of
from chairlift.core.config import POLICIES, PolicyName
from chairlift.core.errors import ConfigError
from chairlift.devices.registry import find_device_model
from tests.advisor.evaluate.making import problem, rounds

BURST = rounds("arrivals=burst arrivals.size=24 prompt=20 output=exponential output.mean=12 output.cap=40", count=2)
MS = 1_000_000


def tuned(policy: PolicyName, targets: Targets | None = None, trials: int = 8, **given: Any) -> Tuned:
    """On the toy device."""
    targets = targets or Targets()
    with Pool(1) as pool:
        return tune(pool, problem(BURST, targets, **given), BURST, targets, policy, Budget(trials=trials))


def test_the_winner_is_never_worse_than_the_defaults() -> None:
    """Under any policy, over all rounds; here a larger batch is better."""
    for policy in POLICIES:
        found = tuned(policy)
        assert found.winner.rank(found.targets) >= found.default.rank(found.targets)
        assert found.winner.settings["policy"] == policy
        assert len(found.winner.outcomes) == 2
    closed = tuned("static")
    assert (closed.winner.mean(closed.targets) or 0) > 1.2 * (closed.default.mean(closed.targets) or 1)


def test_limits_hold_in_every_round_or_it_is_said() -> None:
    """One that can be held, and one below the time of any step."""
    held, broken = (tuned("continuous", Targets(itl_p99=limit * MS)) for limit in (60, 1))

    assert held.limits_met
    assert not broken.limits_met
    assert any("No settings keep every limit" in line for line in tuned_lines(broken))


def test_every_parameter_has_its_neighbours_and_what_binds_it() -> None:
    """Those of dynamic batching, too."""
    found = tuned("dynamic")
    names = [one.name for one in found.parameters]

    assert names == ["max_batch_size", "max_num_batched_tokens", "max_queue_delay", "max_model_len"]
    assert all(one.binding for one in found.parameters)
    text = "\n".join(tuned_lines(found))
    for words in ("--max-batch-size", "half", "double", "what binds it", "defaults", "Search: 8 trials"):
        assert words in text


def test_the_answer_is_json() -> None:
    """Of plain values alone, infinity left out."""
    told = json.loads(json.dumps(tuned("continuous").to_json(), default=str, allow_nan=False))

    assert told["settings"]["policy"] == "continuous"
    assert len(told["parameters"]) > 3


def test_capacity_is_how_fast_the_load_may_come() -> None:
    """The winner takes no less than the defaults; neighbours are looked at where limits are nearly reached."""
    load = rounds("arrivals=poisson arrivals.rate=3 prompt=20 output=10 count=40")
    targets = Targets(CAPACITY, e2e_p99=500 * MS)
    with Pool(1) as pool:
        found = tune(pool, problem(load, targets, max_num_batched_tokens=64), load, targets, "continuous", Budget(8))

    assert found.winner.capacity is not None
    assert found.default.capacity is not None
    assert found.winner.capacity.rate >= found.default.capacity.rate
    assert found.limits_met == (found.winner.capacity.factor >= 1)
    spent = [one.spent for one in found.parameters]
    assert all(one is not None and 0.7 < one <= 1 for one in spent)
    assert any("times the load's rate" in line for line in tuned_lines(found))


def test_no_more_sequences_than_make_a_difference() -> None:
    """Three users: of 24 slots three stay, since one would make them wait."""
    load = rounds("arrivals=closed arrivals.users=3 prompt=20 output=10 count=24")
    asked, targets = problem(load, max_num_batched_tokens=64), Targets()
    with Pool(1) as pool:
        work = _Work(pool, asked, load, targets)
        (wide,) = work.everywhere([{"policy": "continuous", "max_num_seqs": 24}])
        trimmed = work.trimmed(wide, space_of(asked, load, "continuous"), None)

    assert trimmed.settings["max_num_seqs"] == 3
    assert trimmed.mean(targets) == wide.mean(targets)


def test_a_load_without_a_rate_has_no_capacity() -> None:
    """Everything is there at once."""
    with pytest.raises(ConfigError, match="--target capacity raises the rate"):
        tuned("continuous", Targets(CAPACITY, e2e_p99=1500 * MS))


def test_both_maxima_at_once_are_warned_about() -> None:
    """As a server does at its start."""
    assert "together ask" in tuned("continuous", num_kv_blocks=12).warning
    assert tuned("continuous").warning == ""


def test_what_does_not_run_is_said() -> None:
    """A model that does not fit the device."""
    load = rounds("arrivals=burst arrivals.size=4 prompt=20 output=4")
    asked = problem(load, device=find_device_model("l4/llama-3.1-70b"))
    asked = asked.on(asked.device, num_kv_blocks=None)
    with Pool(1) as pool:
        found = tune(pool, asked, load, Targets(), "continuous", Budget(trials=4))

    assert not found.winner.runs
    assert found.found.refusals == {"out_of_memory": 4}
    assert any("Nothing runs: " in line for line in tuned_lines(found))
