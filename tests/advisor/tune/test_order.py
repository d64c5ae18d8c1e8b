from statistics import fmean
from typing import Any

from chairlift.advisor.evaluate.pool import Pool
from chairlift.advisor.evaluate.rounds import Rounds
from chairlift.advisor.evaluate.targets import Targets
from chairlift.advisor.tune.order import Walk, even_round, mixed_round, walk
from chairlift.advisor.tune.report import walk_lines
from tests.advisor.evaluate.making import problem, rounds

LOAD = rounds("arrivals=poisson arrivals.rate=4 prompt=20 output=bimodal output.short=4 output.long=40 count=24")


def go(targets: Targets | None = None, load: Rounds = LOAD, **given: Any) -> Walk:
    """On the toy device."""
    targets = targets or Targets()
    with Pool(1) as pool:
        return walk(pool, problem(load, targets, **given), load.first, targets, "continuous", {"policy": "continuous"})


def test_first_one_alone_then_more_then_the_loads_own_lengths() -> None:
    """Each step twice as many, with lengths alike, until something gives way."""
    stages = go().stages

    assert (stages[0].name, stages[0].users) == ("one request alone", 1)
    alike = [one for one in stages if one.name == "lengths alike"]
    assert [one.users for one in alike] == [2**power for power in range(1, len(alike) + 1)]
    assert not any(one.remark for one in alike[:-1])
    assert alike[-1].remark == "throughput has bent"
    assert [one.name for one in stages[-2:]] == ["the load's lengths"] * 2


def test_it_stops_at_a_broken_limit_or_a_full_pool() -> None:
    """And says which."""
    limited = go(Targets(e2e_p99=210_000_000))
    full = go(load=rounds("arrivals=burst arrivals.size=9 prompt=20 output=40"), num_kv_blocks=10)

    assert any(one.remark == "breaks --e2e-p99" for one in limited.stages)
    assert any("preemptions" in one.remark for one in full.stages)
    assert limited.concurrency < go().concurrency


def test_lengths_alike_are_the_mean_and_mixed_ones_the_loads() -> None:
    """Users take them one after the other."""
    requests = list(LOAD.first.schedule)
    even, mixed = even_round(requests, 3), mixed_round(requests, 8)

    assert {one.output_tokens for one in even.schedule} == {round(fmean(one.output_tokens for one in requests))}
    assert len(even.schedule) == 12
    assert [one.output_tokens for one in mixed.schedule] == [requests[index % 24].output_tokens for index in range(32)]


def test_the_walk_is_told_stage_by_stage() -> None:
    """With what was watched, and the warning at its end."""
    text = "\n".join(walk_lines(go()))

    for words in ("one request alone", "between p99", "KV", "Never", "throughput has bent"):
        assert words in text
