"""Continuous batching when blocks run out, rows fail, steps are aborted, and answers end early."""

from typing import Any

import pytest

from chairlift.core.plan import Finished, StepPlan
from chairlift.core.reasons import Reason
from chairlift.core.request import FinishReason
from chairlift.core.scheduler import Scheduler
from tests.core.helpers import Driver, drive, make_scheduler, request, solo_tokens, submit


def _continuous(**fields: Any) -> Scheduler:
    defaults: dict[str, Any] = {"max_model_len": 128, "max_num_batched_tokens": 64, "max_num_seqs": 8, "watermark": 0.0}
    return make_scheduler(**(defaults | fields))


def _step(driver: Driver) -> StepPlan:
    plan = driver.step()
    assert isinstance(plan, StepPlan)
    return plan


def _decisions(driver: Driver, name: str) -> list[Reason]:
    return [one.reason for plan in driver.log.plans for one in plan.decisions if one.request_id == name]


def _plan_that_preempts(driver: Driver) -> StepPlan:
    """The first plan that takes somebody's blocks, in flight."""
    while True:
        plan = driver.scheduler.plan(driver.now)
        assert isinstance(plan, StepPlan)
        if driver.scheduler.counters.preemptions:
            return plan
        outcome = driver.runner.execute(plan)
        driver.now += outcome.device_time
        driver.log.take(driver.scheduler.commit(plan, outcome, driver.now))


@pytest.mark.parametrize("reservation", ["full", "model_len"])
def test_with_everything_reserved_nobody_is_ever_preempted(reservation: str) -> None:
    """The price is that fewer run at once."""
    scheduler = _continuous(kv_reservation=reservation, num_blocks=17)
    log = drive(scheduler, *(request(f"r{i}", prompt=10, max_tokens=90) for i in range(4)))
    assert log.finished.keys() == {"r0", "r1", "r2", "r3"}
    assert scheduler.counters.preemptions == 0
    assert max(len(plan) for plan in log.plans) == 2


def test_when_blocks_run_out_the_last_in_the_order_gives_way() -> None:
    """It goes back to its place, resumes when its whole length fits, and pays again only what is not cached."""
    scheduler = _continuous(num_blocks=6)
    first, second = (request(name, prompt=40, max_tokens=40) for name in ("first", "second"))
    submit(scheduler, first, second)
    driver = Driver(scheduler)

    log = driver.run()

    assert set(log.preempted) == {"second"}
    assert Reason.PREEMPTED in _decisions(driver, "second")
    assert Reason.RESUMED in _decisions(driver, "second")
    assert Reason.PREEMPTED not in _decisions(driver, "first")
    for one in (first, second):
        assert log.tokens[one.request_id] == solo_tokens(one, 40)[0]
    tokens = scheduler.ledger.report().tokens
    assert tokens.prefill == 80
    assert tokens.decode == 2 * 39
    assert tokens.recompute > 0


def test_a_preempted_request_in_the_middle_of_its_prompt_starts_no_token_over() -> None:
    """What it had computed is recompute, the rest is prefill: its prompt is paid once, and the loss is visible."""
    scheduler = _continuous(num_blocks=10, max_num_batched_tokens=20, enable_prefix_caching=False, block_size=8)
    submit(scheduler, request("a", prompt=23, max_tokens=30))
    driver = Driver(scheduler)
    driver.steps(2)
    submit(scheduler, request("b", prompt=56, max_tokens=3), now=driver.now)

    log = driver.run()

    assert log.preempted == ["b"]
    tokens = scheduler.ledger.report().tokens
    assert tokens.prefill == 23 + 56
    assert 0 < tokens.recompute < 56
    assert log.tokens["b"] == solo_tokens(request("b", prompt=56), 3)[0]


def test_the_first_in_the_order_always_goes_on() -> None:
    """No livelock near the end of the pool: in every step the first running sequence gets its token."""
    scheduler = _continuous(num_blocks=9, block_size=4, max_model_len=36)
    submit(scheduler, *(request(f"r{i}", prompt=8, max_tokens=28) for i in range(4)))
    driver = Driver(scheduler)
    while scheduler.has_work:
        first = min({"r0", "r1", "r2", "r3"} - driver.log.finished.keys())
        assert first in _step(driver).request_ids
    assert len(driver.log.plans) < 4 * 30


def test_an_aborted_plan_leaves_admissions_and_preemptions_as_they_were_made() -> None:
    """Nothing moves on; the next plan computes the same rows with the same blocks, under the same step number."""
    scheduler = _continuous(num_blocks=6)
    submit(scheduler, request("a", prompt=40, max_tokens=40), request("b", prompt=40, max_tokens=40))
    driver = Driver(scheduler)
    plan = _plan_that_preempts(driver)
    rows = (plan.step, plan.request_ids, plan.starts, plan.counts, plan.tokens, [list(one) for one in plan.tables])

    events = scheduler.abort(plan, driver.now + 5)

    assert (events.tokens, events.finished, events.preempted) == ((), (), ())
    again = scheduler.plan(driver.now + 5)
    assert isinstance(again, StepPlan)
    assert rows == (
        again.step,
        again.request_ids,
        again.starts,
        again.counts,
        again.tokens,
        [list(one) for one in again.tables],
    )
    assert scheduler.counters.preemptions == 1
    events = scheduler.commit(again, driver.runner.execute(again), driver.now + 10**9)
    assert events.preempted == ("b",), "told when a step has happened"


def test_a_preemption_is_not_told_of_who_was_cancelled_since() -> None:
    """Nothing is heard of a request after its end."""
    scheduler = _continuous(num_blocks=6)
    submit(scheduler, request("a", prompt=40, max_tokens=40), request("b", prompt=40, max_tokens=40))
    driver = Driver(scheduler)
    plan = _plan_that_preempts(driver)

    scheduler.cancel("b", driver.now)
    events = scheduler.abort(plan, driver.now)

    assert [one.request_id for one in events.finished] == ["b"]
    assert driver.run().preempted == []


def test_a_failure_on_the_first_token_ends_one_request() -> None:
    """In the step that completes its prompt; its neighbours' tokens count, and its blocks are free."""
    scheduler = _continuous()
    submit(scheduler, request("a"), request("b"), request("c"))
    driver = Driver(scheduler)
    driver.runner.failing["b"] = "no finite logit"

    _step(driver)

    assert driver.log.finished == {"b": Finished("b", FinishReason.ERROR, 0, "no finite logit")}
    assert driver.log.tokens.keys() == {"a", "c"}
    assert scheduler.usage().kv_used == 2
    assert _step(driver).request_ids == ("a", "c")


def test_what_a_failed_request_computed_is_shared_with_nobody() -> None:
    """A fault in keys and values would otherwise fail every later request that begins alike; what another running
    request shares stays.
    """
    scheduler = _continuous(block_size=4)
    bad = request("bad", prompt=16, max_tokens=9)
    submit(scheduler, bad)
    driver = Driver(scheduler)
    driver.steps(2)
    submit(scheduler, request("beside", prompt=bad.prompt[:9], max_tokens=9), now=driver.now)
    _step(driver)
    driver.runner.failing["bad"] = "no finite logit"
    _step(driver)
    assert driver.log.finished["bad"].reason is FinishReason.ERROR
    hits = scheduler.counters.prefix_hits

    submit(scheduler, request("again", prompt=bad.prompt, max_tokens=2), now=driver.now)
    _step(driver)

    assert scheduler.counters.prefix_hits == hits + 8, "the two blocks that the other uses"
    scheduler.check_integrity()


def test_a_failure_in_the_middle_of_a_prompt_ends_it_too() -> None:
    """A row need not sample to fail."""
    scheduler = _continuous(max_num_batched_tokens=20)
    submit(scheduler, request("a", prompt=50))
    plan = scheduler.plan(0)
    assert isinstance(plan, StepPlan)
    outcome = Driver(scheduler).runner.execute(plan)

    events = scheduler.commit(plan, type(outcome)((), 1, failures={0: "x"}), 1)

    assert events.finished == (Finished("a", FinishReason.ERROR, 0, "x"),)
    assert scheduler.counters.output_tokens == 0
    assert not scheduler.has_work


def test_whole_answers_leave_when_they_end() -> None:
    """Under release request nothing is told before; a preemption in between loses nothing."""
    scheduler = _continuous(release="request", num_blocks=6)
    requests = [request(name, prompt=40, max_tokens=40) for name in ("a", "b")]
    log = drive(scheduler, *requests)

    assert log.preempted
    for one in requests:
        assert log.tokens[one.request_id] == solo_tokens(one, 40)[0]


def test_stop_ids_count_from_min_tokens_on() -> None:
    """The first occurrence at or after min_tokens ends the answer, and is part of it."""
    tokens = solo_tokens(request("r", prompt=9), 20)[0]
    scheduler = _continuous()
    log = drive(scheduler, request("r", prompt=9, max_tokens=20, stop_ids=frozenset({tokens[2]})))
    assert (log.tokens["r"], log.finished["r"].reason) == (tokens[:3], FinishReason.STOP)

    scheduler = _continuous()
    stops = frozenset({tokens[2], tokens[6]})
    log = drive(scheduler, request("r", prompt=9, max_tokens=20, stop_ids=stops, min_tokens=4))
    assert (log.tokens["r"], log.finished["r"].reason) == (tokens[:7], FinishReason.STOP)


def test_a_stop_id_of_one_is_a_word_for_another() -> None:
    """Stop ids belong to their request, whoever decodes beside it."""
    tokens = solo_tokens(request("a", prompt=9), 12)[0]
    log = drive(
        _continuous(),
        request("a", prompt=9, max_tokens=12),
        request("b", prompt=9, max_tokens=12, stop_ids=frozenset(tokens)),
    )
    assert log.tokens["a"] == tokens


def test_a_stop_at_the_last_token_is_a_stop() -> None:
    """When stop id and length meet, the answer ended by itself."""
    tokens = solo_tokens(request("r", prompt=9), 5)[0]
    log = drive(_continuous(), request("r", prompt=9, max_tokens=5, stop_ids=frozenset({tokens[4]})))
    assert (log.tokens["r"], log.finished["r"].reason) == (tokens, FinishReason.STOP)
