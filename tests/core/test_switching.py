"""The live switch: all six pairs, in the prompts and in the answers."""

from itertools import permutations
from typing import Any

import pytest

from chairlift.core.config import POLICIES, PolicyName
from chairlift.core.errors import ConfigError
from chairlift.core.ledger import Category
from chairlift.core.plan import StepPlan, Wait
from chairlift.core.reasons import Reason
from chairlift.core.request import FinishReason
from chairlift.core.scheduler import Scheduler
from tests.core.helpers import Driver, make_scheduler, request, solo_tokens, submit

PAIRS = list(permutations(POLICIES, 2))
REQUESTS = [request(f"r{i}", prompt=20 + 7 * i, max_tokens=6 + 5 * i) for i in range(4)]
LATER = [request(f"later{i}", prompt=9, max_tokens=5) for i in range(3)]


def _scheduler(policy: PolicyName, **fields: Any) -> Scheduler:
    defaults: dict[str, Any] = {
        "max_num_batched_tokens": 40,
        "batch_size": 3,
        "max_batch_size": 3,
        "max_num_seqs": 3,
        "max_queue_delay": 0,
        "max_model_len": 128,
    }
    return make_scheduler(policy=policy, **(defaults | fields))


def _check_end(driver: Driver) -> None:
    """Everybody has ended with the tokens that it has alone, and everything is free."""
    scheduler = driver.scheduler
    scheduler.end_input(driver.now)
    driver.run()
    for one in (*REQUESTS, *LATER):
        assert one.max_tokens is not None
        assert driver.log.tokens[one.request_id] == solo_tokens(one, one.max_tokens)[0]
        assert driver.log.finished[one.request_id].reason is FinishReason.LENGTH
    scheduler.check_integrity()
    assert scheduler.usage().kv_used == 0
    report = scheduler.ledger.report(driver.now)
    assert sum(report.times.values()) == report.wall


@pytest.mark.parametrize("before", [0, 1, 2, 3, 5, 9], ids=lambda steps: f"after {steps} steps")
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_switch_changes_no_token(source: PolicyName, target: PolicyName, before: int) -> None:
    """For all six pairs, from the first chunk of a prompt to the middle of the answers, with more to come."""
    scheduler = _scheduler(source)
    submit(scheduler, *REQUESTS)
    driver = Driver(scheduler)
    driver.steps(before)

    driver.log.take(scheduler.switch_policy(target, driver.now))
    submit(scheduler, *LATER, now=driver.now)
    driver.steps(40)

    assert scheduler.config.policy == target
    assert scheduler.usage().switching_to is None
    _check_end(driver)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_switch_asked_for_in_a_step_acts_when_it_has_landed(source: PolicyName, target: PolicyName) -> None:
    """With a plan in flight nothing changes until its commit, or its abort."""
    for lands in (True, False):
        scheduler = _scheduler(source)
        submit(scheduler, *REQUESTS)
        driver = Driver(scheduler)
        driver.steps(2)
        plan = scheduler.plan(driver.now)
        assert isinstance(plan, StepPlan)

        events = scheduler.switch_policy(target, driver.now)

        assert not events.tokens
        assert scheduler.config.policy == source
        assert scheduler.usage().switching_to == target
        if lands:
            driver.log.take(scheduler.commit(plan, driver.runner.execute(plan), driver.now))
        else:
            driver.log.take(scheduler.abort(plan, driver.now))
        if target == "continuous":
            assert scheduler.config.policy == target
        submit(scheduler, *LATER, now=driver.now)
        _check_end(driver)


@pytest.mark.parametrize("target", ["static", "dynamic"])
def test_out_of_continuous_nothing_new_is_admitted_until_it_has_drained(target: PolicyName) -> None:
    """What runs goes on, what waits is told that a switch keeps it, and the time of the drain is switching."""
    scheduler = _scheduler("continuous")
    submit(scheduler, *REQUESTS)
    driver = Driver(scheduler)
    driver.steps(4)
    before = scheduler.ledger.report(driver.now)
    scheduler.switch_policy(target, driver.now)
    reasons = []
    began = driver.now

    while scheduler.usage().switching_to is not None:
        plan = driver.step()
        assert isinstance(plan, StepPlan)
        assert "r3" not in plan.request_ids
        reasons += [(one.request_id, one.reason) for one in plan.decisions]

    assert driver.log.finished.keys() == {"r0", "r1", "r2"}
    assert ("r3", Reason.WAITING_FOR_SWITCH) in reasons
    after = scheduler.ledger.report(driver.now)
    assert after.times[Category.SWITCHING] == driver.now - began
    assert before.times[Category.SWITCHING] == 0
    assert after.times[Category.DECODE] == before.times[Category.DECODE]
    submit(scheduler, *LATER, now=driver.now)
    _check_end(driver)


def test_into_continuous_the_running_members_are_adopted() -> None:
    """They keep their blocks and are not computed again; results that were held back leave at once."""
    scheduler = _scheduler("static")
    submit(scheduler, *REQUESTS)
    driver = Driver(scheduler)
    while driver.log.finished or scheduler.counters.finished[FinishReason.LENGTH] == 0:
        driver.step()
    computed = scheduler.ledger.report().tokens

    events = scheduler.switch_policy("continuous", driver.now)

    assert [one.request_id for one in events.finished] == ["r0"]
    assert set(events.request_ids) == {"r0", "r1", "r2"}, "from here on answers are streamed"
    driver.log.take(events)
    plan = driver.step()
    assert isinstance(plan, StepPlan)
    assert set(plan.request_ids) == {"r1", "r2", "r3"}
    submit(scheduler, *LATER, now=driver.now)
    _check_end(driver)
    tokens = scheduler.ledger.report().tokens
    assert tokens.recompute == 0
    assert tokens.prefill == sum(len(one.prompt) for one in (*REQUESTS, *LATER))
    assert tokens.dead == computed.dead


def test_members_beyond_max_num_seqs_go_back_to_the_queue() -> None:
    """max_num_seqs is kept at once: the last in the total order are preempted, and keep their places."""
    scheduler = _scheduler("static", max_num_seqs=1)
    submit(scheduler, *REQUESTS)
    driver = Driver(scheduler)
    driver.steps(5)

    driver.log.take(scheduler.switch_policy("continuous", driver.now))

    plan = driver.step()
    assert isinstance(plan, StepPlan)
    assert plan.request_ids == ("r0",)
    assert driver.log.preempted == ["r1", "r2"]
    submit(scheduler, *LATER, now=driver.now)
    _check_end(driver)
    assert [name for name in driver.log.finished if name in {"r0", "r1", "r2", "r3"}] == ["r0", "r1", "r2", "r3"]


def test_a_smaller_budget_is_kept_from_the_switch_on() -> None:
    """Fewer tokens a step and fewer sequences, changed live within continuous."""
    scheduler = _scheduler("continuous")
    submit(scheduler, *REQUESTS)
    driver = Driver(scheduler)
    driver.steps(5)

    scheduler.switch_policy("continuous", driver.now, max_num_seqs=2, max_num_batched_tokens=2)

    for plan in driver.steps(30):
        assert isinstance(plan, StepPlan)
        assert len(plan) <= 2
        assert sum(plan.counts) <= 2
    submit(scheduler, *LATER, now=driver.now)
    _check_end(driver)


@pytest.mark.parametrize("releases", [("token", "request"), ("request", "token")])
def test_a_change_of_release_loses_and_repeats_nothing(releases: tuple[str, str]) -> None:
    """From streamed to whole answers or back, live: each token leaves once."""
    scheduler = _scheduler("continuous", release=releases[0])
    submit(scheduler, *REQUESTS)
    driver = Driver(scheduler)
    driver.steps(6)

    driver.log.take(scheduler.switch_policy("continuous", driver.now, release=releases[1]))

    submit(scheduler, *LATER, now=driver.now)
    _check_end(driver)


@pytest.mark.parametrize("source", ["static", "dynamic"])
def test_a_release_that_was_chosen_outlives_the_switch(source: PolicyName) -> None:
    """With release request an adopted member's tokens are held until it ends."""
    scheduler = _scheduler(source, release="request")
    submit(scheduler, *REQUESTS)
    driver = Driver(scheduler)
    driver.steps(4)

    events = scheduler.switch_policy("continuous", driver.now)

    assert not events.tokens
    submit(scheduler, *LATER, now=driver.now)
    _check_end(driver)


@pytest.mark.parametrize(("source", "target"), [("static", "dynamic"), ("dynamic", "static")])
def test_between_closed_policies_the_current_batch_finishes(source: PolicyName, target: PolicyName) -> None:
    """Its members leave together, and the next batch is the new policy's."""
    scheduler = _scheduler(source)
    submit(scheduler, *REQUESTS)
    driver = Driver(scheduler)
    driver.steps(3)
    scheduler.switch_policy(target, driver.now)

    while not driver.log.finished:
        assert scheduler.config.policy == source
        plan = driver.step()
        assert isinstance(plan, StepPlan)
        assert plan.policy == source

    assert driver.log.finished.keys() == {"r0", "r1", "r2"}
    assert scheduler.config.policy == target
    submit(scheduler, *LATER, now=driver.now)
    _check_end(driver)


def test_who_was_preempted_is_drained_too() -> None:
    """A request with half an answer does not wait for a static batch to fill: it resumes and ends before the switch."""
    scheduler = _scheduler("continuous", watermark=0.0, block_size=4, num_blocks=24, max_model_len=96, batch_size=3)
    submit(scheduler, request("a", prompt=20, max_tokens=60), request("b", prompt=20, max_tokens=60))
    driver = Driver(scheduler)
    while not driver.log.preempted:
        driver.step()
    submit(scheduler, request("new", prompt=4, max_tokens=4), now=driver.now)

    scheduler.switch_policy("static", driver.now)
    driver.run()

    assert driver.log.finished.keys() == {"a", "b"}
    assert scheduler.config.policy == "static"
    assert driver.log.waits[-1].reason is Reason.BATCH_NOT_FULL
    assert driver.log.tokens["b"] == solo_tokens(request("b", prompt=20), 60)[0]


def test_a_switch_back_before_the_drain_is_over_lets_the_queue_move_again() -> None:
    """The last wish counts: continuous, to static, and back to continuous."""
    scheduler = _scheduler("continuous", max_num_seqs=4)
    submit(scheduler, *REQUESTS[:2])
    driver = Driver(scheduler)
    driver.steps(3)
    scheduler.switch_policy("static", driver.now)
    submit(scheduler, *REQUESTS[2:], now=driver.now)
    plan = driver.step()
    assert isinstance(plan, StepPlan)
    assert set(plan.request_ids) == {"r0", "r1"}

    scheduler.switch_policy("continuous", driver.now)

    plan = driver.step()
    assert isinstance(plan, StepPlan)
    assert "r2" in plan.request_ids
    submit(scheduler, *LATER, now=driver.now)
    _check_end(driver)
    assert scheduler.ledger.report().tokens.recompute == 0


def test_the_last_of_two_wishes_counts() -> None:
    """A second switch replaces one that is still pending."""
    scheduler = _scheduler("continuous")
    submit(scheduler, *REQUESTS)
    driver = Driver(scheduler)
    driver.steps(3)
    scheduler.switch_policy("static", driver.now)
    scheduler.switch_policy("dynamic", driver.now)

    while scheduler.usage().switching_to:
        driver.step()

    assert scheduler.config.policy == "dynamic"
    submit(scheduler, *LATER, now=driver.now)
    _check_end(driver)


def test_the_end_of_the_input_is_known_to_the_next_policy() -> None:
    """An unfilled batch leaves after a switch as it would have before."""
    scheduler = _scheduler("continuous")
    scheduler.end_input(0)
    scheduler.switch_policy("static", 0)
    submit(scheduler, request("alone"))

    assert Driver(scheduler).run().finished.keys() == {"alone"}


def test_who_waits_is_told_for_what_under_the_new_policy() -> None:
    """For the batch under a closed policy, for its turn under continuous: no reason outlives its policy."""
    scheduler = _scheduler("static")
    submit(scheduler, request("a"), request("b"))
    told = scheduler.switch_policy("continuous", 0).decisions
    assert [(one.request_id, one.reason) for one in told][-2:] == [
        ("a", Reason.WAITING_FOR_TURN),
        ("b", Reason.WAITING_FOR_TURN),
    ]

    told = scheduler.switch_policy("dynamic", 0).decisions
    assert [(one.request_id, one.reason) for one in told] == [
        ("a", Reason.WAITING_FOR_BATCH),
        ("b", Reason.WAITING_FOR_BATCH),
    ]


def test_an_idle_scheduler_switches_at_once() -> None:
    """Nothing runs, so there is nothing to wait for."""
    scheduler = _scheduler("continuous")
    scheduler.switch_policy("static", 5, batch_size=2)
    assert (scheduler.config.policy, scheduler.config.batch_size) == ("static", 2)
    assert scheduler.plan(6) == Wait(None, Reason.QUEUE_EMPTY)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_num_batched_tokens": 41}, "a step of --max-num-batched-tokens 41 was not reserved for at start (40)"),
        ({"max_model_len": 64}, "--max-model-len cannot change in a live switch"),
        ({"queue_order": "priority"}, "--queue-order cannot change in a live switch"),
        ({"enable_prefix_caching": False}, "--enable-prefix-caching cannot change in a live switch"),
        ({"batch_size": 41}, "--max-num-batched-tokens is 40, but --batch-size lets 41"),
        ({"kv_reservation": "prompt"}, "use full or model_len"),
        ({"kv_reservation": "model_len", "max_model_len": 2000}, "--max-model-len cannot change"),
    ],
)
def test_a_switch_that_cannot_be_is_refused_and_changes_nothing(changes: dict[str, Any], words: str) -> None:
    """A larger step than at start, settings that are fixed, and settings that do not go together."""
    scheduler = _scheduler("continuous")
    submit(scheduler, *REQUESTS)
    driver = Driver(scheduler)
    driver.steps(3)
    before = scheduler.config, scheduler.usage()

    with pytest.raises(ConfigError) as caught:
        scheduler.switch_policy("static", driver.now, **changes)

    assert words in str(caught.value)
    assert (scheduler.config, scheduler.usage()) == before


def test_a_pool_too_small_for_the_reservation_refuses_the_switch() -> None:
    """Under model_len nobody could ever be served."""
    scheduler = _scheduler("continuous", num_blocks=4)
    with pytest.raises(ConfigError, match="holds 8 KV blocks of 16 for each sequence; the whole pool has 4"):
        scheduler.switch_policy("static", 0, kv_reservation="model_len")


def test_a_switch_back_to_the_size_at_start_is_no_larger_step() -> None:
    """What was reserved at start counts, not what was used last."""
    scheduler = _scheduler("continuous")
    scheduler.switch_policy("continuous", 0, max_num_batched_tokens=8)
    scheduler.switch_policy("continuous", 0, max_num_batched_tokens=40)
    assert scheduler.config.max_num_batched_tokens == 40


def test_requests_are_judged_by_the_policy_to_come() -> None:
    """While a switch drains, a request that could never run under the policy to come is refused at the door."""
    scheduler = _scheduler("continuous", max_queued_requests=10)
    submit(scheduler, *REQUESTS)
    driver = Driver(scheduler)
    driver.steps(2)
    scheduler.switch_policy("static", driver.now, max_queued_requests=3)

    verdicts = [scheduler.submit(one, driver.now) for one in LATER]

    assert [type(verdict).__name__ for verdict in verdicts] == ["Accepted", "Accepted", "Refused"]
