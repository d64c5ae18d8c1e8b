from random import Random
from typing import Any

import pytest

from chairlift.core.batchers.continuous import ContinuousBatcher
from chairlift.core.config import POLICIES, PolicyName
from chairlift.core.errors import ConfigError, ContractError
from chairlift.core.ledger import Category
from chairlift.core.plan import Finished, StepEvents, StepOutcome, StepPlan, Wait
from chairlift.core.reasons import Reason
from chairlift.core.request import Accepted, FinishReason, Refused
from chairlift.core.scheduler import Scheduler
from tests.core.helpers import MILLISECOND, Driver, any_outcome, make_scheduler, request, submit

under_policies = pytest.mark.parametrize("policy", POLICIES)


def _planned(scheduler: Scheduler, now: int = 0) -> StepPlan:
    plan = scheduler.plan(now)
    assert isinstance(plan, StepPlan)
    return plan


def test_an_accepted_request_is_told_what_it_may_generate() -> None:
    """With max_model_len and the pool taken into account."""
    assert make_scheduler().submit(request(max_tokens=7), 0) == Accepted("r", 7)
    assert make_scheduler(max_model_len=50).submit(request(prompt=8, max_tokens=None), 0) == Accepted("r", 42)
    assert make_scheduler(num_blocks=2).submit(request(prompt=8, max_tokens=None), 0) == Accepted("r", 24)


def test_an_id_that_is_held_is_refused_and_free_again_after_its_end() -> None:
    """Ids are unique among the requests that the scheduler holds, and nothing else is asked of them."""
    scheduler = make_scheduler()
    submit(scheduler, request("a"))

    verdict = scheduler.submit(request("a", prompt=3), 0)

    assert isinstance(verdict, Refused)
    assert (verdict.reason, verdict.setting) == (Reason.DUPLICATE_ID, "request_id")
    assert "'a'" in verdict.message
    driver = Driver(scheduler)
    driver.run()
    submit(scheduler, request("a"), now=driver.now)
    assert (scheduler.counters.accepted, scheduler.counters.refused) == (2, 1)


def test_a_refused_request_leaves_no_trace() -> None:
    """Neither in the queue nor in any counter but its own, and it does not end the idle time."""
    scheduler = make_scheduler()
    scheduler.plan(0)
    verdict = scheduler.submit(request(prompt=0), 10)

    assert isinstance(verdict, Refused)
    assert not scheduler.has_work
    assert scheduler.ledger.gap is Category.IDLE
    assert (scheduler.counters.accepted, scheduler.counters.refused, scheduler.counters.prompt_tokens) == (0, 1, 0)


@under_policies
def test_one_plan_is_in_flight_at_most(policy: PolicyName) -> None:
    """A second plan() before commit or abort breaks the contract, and so does ending a plan twice or another's."""
    scheduler = make_scheduler(policy=policy, batch_size=1, max_queue_delay=0)
    submit(scheduler, request())
    plan = _planned(scheduler)

    with pytest.raises(ContractError, match="step 0 is in flight"):
        scheduler.plan(1)
    other = _planned(_with_work())
    with pytest.raises(ContractError, match="is not the plan in flight"):
        scheduler.commit(other, any_outcome(other), 1)
    scheduler.abort(plan, 1)
    with pytest.raises(ContractError, match="no plan is"):
        scheduler.abort(plan, 1)
    with pytest.raises(ContractError, match="no plan is"):
        scheduler.commit(plan, any_outcome(plan), 1)
    with pytest.raises(ContractError, match="no plan is"):
        scheduler.horizon(plan)


def _with_work(**fields: Any) -> Scheduler:
    scheduler = make_scheduler(**fields)
    submit(scheduler, request())
    return scheduler


def test_an_outcome_has_to_fit_its_plan() -> None:
    """As many tokens as rows sample, nothing about rows that are not there; one that is refused changes nothing."""
    scheduler = _with_work()
    plan = _planned(scheduler)
    for outcome, words in (
        (StepOutcome([], 1), "samples 1 tokens; the outcome has 0"),
        (StepOutcome([1, 2], 1), "samples 1 tokens; the outcome has 2"),
        (StepOutcome([1], 1, failures={1: "x"}), "has rows 0 to 0; the outcome speaks of another"),
        (StepOutcome([1], 1, stops={-1: FinishReason.STOP}), "has rows 0 to 0"),
    ):
        with pytest.raises(ContractError, match=words):
            scheduler.commit(plan, outcome, 1)
    assert scheduler.commit(plan, StepOutcome([5], 1), 1).tokens == [5]


def test_time_never_runs_backwards() -> None:
    """No call accepts a time before the last that was booked, and a refused one changes nothing."""
    scheduler = _with_work()
    plan = _planned(scheduler, 100)
    calls = (
        lambda: scheduler.submit(request("b"), 99),
        lambda: scheduler.commit(plan, any_outcome(plan), 99),
        lambda: scheduler.abort(plan, 99),
        lambda: scheduler.cancel("r", 99),
        lambda: scheduler.switch_policy("static", 99),
        lambda: scheduler.end_input(99),
    )
    for call in calls:
        with pytest.raises(ContractError, match="time ran backwards"):
            call()
    scheduler.commit(plan, any_outcome(plan), 100)
    with pytest.raises(ContractError, match="time ran backwards"):
        scheduler.plan(99)


def test_a_pool_that_can_serve_nobody_is_refused_at_start() -> None:
    """The naive reservation needs max_model_len for each."""
    with pytest.raises(ConfigError, match="--kv-reservation model_len holds 128 KV blocks"):
        make_scheduler(num_blocks=4, kv_reservation="model_len")


@under_policies
def test_a_cancellation_acts_at_once_between_steps(policy: PolicyName) -> None:
    """Queued or running, it ends then and there, with a decision, and its blocks are free."""
    scheduler = make_scheduler(policy=policy, batch_size=1, max_batch_size=1, max_num_seqs=1)
    submit(scheduler, request("a", max_tokens=9), request("b"))
    driver = Driver(scheduler)
    driver.steps(2)

    queued, running = scheduler.cancel("b", driver.now), scheduler.cancel("a", driver.now)

    assert [one.request_id for one in (*queued.finished, *running.finished)] == ["b", "a"]
    assert Reason.CANCELLED in [one.reason for one in queued.decisions]
    assert not scheduler.has_work
    assert scheduler.usage().kv_used == 0
    assert scheduler.ledger.gap is Category.IDLE


def test_a_cancellation_in_flight_acts_when_the_step_lands() -> None:
    """The step's token still counts; a request that ended by it has ended as it did."""
    scheduler = make_scheduler()
    submit(scheduler, request("goes", max_tokens=9), request("ends", max_tokens=1))
    plan = _planned(scheduler)
    assert scheduler.cancel("goes", 1) == StepEvents()
    assert scheduler.cancel("ends", 1) == StepEvents()

    events = scheduler.commit(plan, StepOutcome([4, 5], 1), 2)

    assert list(events.request_ids) == ["goes", "ends"]
    assert events.finished == (
        Finished("ends", FinishReason.LENGTH, 1),
        Finished("goes", FinishReason.CANCELLED, 1),
    )


def test_a_cancellation_of_a_stranger_is_no_error() -> None:
    """The result may have crossed it; and whoever comes under that id later is not meant."""
    scheduler = _with_work()
    plan = _planned(scheduler)
    assert scheduler.cancel("nobody", 0) == StepEvents()
    submit(scheduler, request("nobody"))

    events = scheduler.commit(plan, any_outcome(plan), 1)

    assert events.finished == ()
    assert Driver(scheduler, now=1).run().finished["nobody"].reason is FinishReason.LENGTH


def test_twice_cancelled_is_cancelled() -> None:
    """A client that leaves and an engine that notices are one cancellation."""
    scheduler = _with_work()
    plan = _planned(scheduler)
    scheduler.cancel("r", 0)
    scheduler.cancel("r", 0)
    assert len(scheduler.commit(plan, any_outcome(plan), 1).finished) == 1
    assert scheduler.counters.finished[FinishReason.CANCELLED] == 1


@under_policies
def test_an_aborted_step_did_not_happen(policy: PolicyName) -> None:
    """No token, no progress, the same step number again; its time is the host's."""
    scheduler = make_scheduler(policy=policy, batch_size=1, max_queue_delay=0)
    submit(scheduler, request())
    plan = _planned(scheduler, 10)
    events = scheduler.abort(plan, 25)

    assert (events.tokens, events.finished) == ((), ())
    again = _planned(scheduler, 25)
    assert (again.step, again.starts, again.tokens) == (plan.step, plan.starts, plan.tokens)
    report = scheduler.ledger.report()
    assert (report.steps, report.device, report.times[Category.HOST]) == (0, 0, report.wall)


def test_time_without_work_is_idle_and_time_before_a_plan_is_the_hosts() -> None:
    """Idle until a request is accepted, then host, the device's share by kind, idle again at the end."""
    scheduler = make_scheduler()
    scheduler.plan(0)
    submit(scheduler, request(prompt=8, max_tokens=1), now=100)
    plan = _planned(scheduler, 130)
    scheduler.commit(plan, any_outcome(plan, device_time=50), 190)

    times = scheduler.ledger.report(200).times

    assert times[Category.IDLE] == 100 + 10
    assert times[Category.HOST] == 30 + 10
    assert times[Category.PREFILL] == 50


def test_the_recoverable_time_of_a_closed_batch_is_less_than_its_share() -> None:
    """Eight rows cost little more than one, so average cost overstates what padding and dead rows waste."""
    scheduler = make_scheduler(policy="static", batch_size=4, max_model_len=256)
    draw = Random(3)
    for i in range(24):
        submit(scheduler, request(f"r{i}", prompt=draw.randint(1, 60), max_tokens=draw.randint(1, 40)))
    Driver(scheduler).run()

    report = scheduler.ledger.report()

    wasted = report.times[Category.PADDING] + report.times[Category.DEAD]
    assert 0 < report.recoverable < wasted / 2
    # linear_time: a millisecond for each token and a microsecond for each position read.
    exact = (report.tokens.padding + report.tokens.dead) * MILLISECOND
    assert report.recoverable == pytest.approx(exact, rel=0.15)


def test_usage_is_the_scheduler_at_one_moment() -> None:
    """Queue, batch and pool; what running sequences hold and have not computed is reserved and unused."""
    scheduler = make_scheduler(max_num_seqs=1, block_size=4, num_blocks=20, max_model_len=64)
    submit(scheduler, request("a", prompt=10, max_tokens=9), request("b", prompt=5), request("c", prompt=6))
    driver = Driver(scheduler)
    driver.steps(2)

    usage = scheduler.usage()

    assert (usage.policy, usage.switching_to) == ("continuous", None)
    assert (usage.running, usage.waiting, usage.waiting_tokens) == (1, 2, 11)
    assert (usage.kv_blocks, usage.kv_used, usage.kv_cached, usage.evictions) == (20, 3, 0, 0)
    assert usage.kv_reserved_unused == 12 - 11
    assert usage.kv_largest_free_run == 17


@under_policies
def test_a_virtual_prompt_is_served_like_a_real_one(policy: PolicyName) -> None:
    """A range costs no memory in the queue, and its tokens are computed as any."""
    logs = []
    for prompt in (range(3, 40), list(range(3, 40))):
        scheduler = make_scheduler(policy=policy, max_model_len=64)
        submit(scheduler, request("r", prompt=prompt, max_tokens=6))
        scheduler.end_input(0)
        logs.append(Driver(scheduler).run().tokens)
    assert logs[0] == logs[1]


@under_policies
@pytest.mark.parametrize("arrival", [-50, 0, 10**12])
def test_an_arrival_in_the_past_or_future_orders_and_delays_nothing_else(policy: PolicyName, arrival: int) -> None:
    """It is when the request was due: of another moment than submit(), it is served all the same."""
    scheduler = make_scheduler(policy=policy, batch_size=2, max_queue_delay=10**13, max_num_seqs=1, max_batch_size=2)
    submit(scheduler, request("now", max_tokens=2), request("due", max_tokens=2, arrival=arrival), now=5)

    log = Driver(scheduler, now=5).run()

    assert log.finished.keys() == {"now", "due"}
    if policy == "continuous":
        assert next(iter(log.finished)) == ("now" if arrival > 5 else "due")


def test_health_is_green_while_a_policy_lawfully_waits() -> None:
    """A batch that is not full is not a fault."""
    scheduler = make_scheduler(policy="static")
    submit(scheduler, request())
    assert scheduler.plan(0) == Wait(None, Reason.BATCH_NOT_FULL)
    assert scheduler.health().ok


def test_input_may_come_after_its_end() -> None:
    """end_input is a promise about batches, not a closed door: who comes later is served at once."""
    scheduler = make_scheduler(policy="static", batch_size=4)
    scheduler.end_input(0)
    submit(scheduler, request())
    assert _planned(scheduler).request_ids == ("r",)


def test_a_static_batch_fills_whatever_the_queues_limit_in_tokens() -> None:
    """Limits that keep the batch from filling would hold everybody for ever."""
    scheduler = make_scheduler(policy="static", batch_size=3, max_queued_tokens=10)
    submit(scheduler, *(request(f"r{i}", prompt=9) for i in range(3)))
    assert len(_planned(scheduler)) == 3


def test_decisions_reach_the_world_with_the_next_plan_or_event() -> None:
    """Accepted and waiting for the batch are told with the plan that starts it; an end with the commit that made it."""
    scheduler = make_scheduler(policy="static", batch_size=1)
    submit(scheduler, request(max_tokens=1))
    plan = _planned(scheduler)
    assert [one.reason for one in plan.decisions] == [Reason.ACCEPTED, Reason.WAITING_FOR_BATCH, Reason.ADMITTED]
    events = scheduler.commit(plan, any_outcome(plan), 1)
    assert [one.reason for one in events.decisions] == [Reason.FINISHED]
    assert events.decisions[0].numbers == {"output_tokens": 1}


@under_policies
def test_a_long_life_leaves_nothing_behind(policy: PolicyName) -> None:
    """After thousands of steps with stops, cancellations and preemptions nothing is held of who has left."""
    scheduler = make_scheduler(
        policy=policy, num_blocks=10, block_size=4, max_model_len=40, max_num_seqs=4, max_queue_delay=0, watermark=0.0
    )
    driver, draw = Driver(scheduler), Random(5)
    for number in range(600):
        stops = frozenset(range(5000)) if draw.random() < 0.3 else frozenset[int]()
        one = request(f"r{number}", prompt=draw.randint(1, 12), max_tokens=draw.randint(1, 28), stop_ids=stops)
        submit(scheduler, one, now=driver.now)
        driver.steps(4)
        if draw.random() < 0.2:
            driver.log.take(scheduler.cancel(f"r{draw.randint(0, number)}", driver.now))
    scheduler.end_input(driver.now)
    driver.run()

    state = scheduler._state
    assert len(driver.log.finished) == 600
    assert (len(state.sequences), len(state.queue), state.decisions) == (0, 0, [])
    assert scheduler._cancelled == []
    if isinstance(scheduler._batcher, ContinuousBatcher):
        decodes = scheduler._batcher._decodes
        assert scheduler.counters.preemptions > 10
        assert sum(map(len, decodes._growth.values())) + sum(map(len, decodes._lengths.values())) < 40
        assert (decodes.sequences, decodes.stop_ids) == ([], {})
