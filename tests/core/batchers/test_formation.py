from typing import Any

import pytest

from chairlift.core.blocks import BlockPool
from chairlift.core.ledger import Category
from chairlift.core.plan import StepPlan, Wait
from chairlift.core.reasons import Reason
from chairlift.core.scheduler import Scheduler
from tests.core.helpers import MILLISECOND, Driver, any_outcome, blocks_of, make_scheduler, request, submit


def _static(**fields: Any) -> Scheduler:
    defaults: dict[str, Any] = {"policy": "static", "batch_size": 3, "max_model_len": 128}
    return make_scheduler(**(defaults | fields))


def _step(driver: Driver) -> StepPlan:
    plan = driver.step()
    assert isinstance(plan, StepPlan)
    return plan


def test_reservation_is_full_or_the_padding_whichever_is_more() -> None:
    """Prompts 4 and 20 with 2 tokens each, blocks of 4: the short one holds 20 positions for its padding, not 6."""
    scheduler = _static(batch_size=2, block_size=4)
    submit(scheduler, request("a", prompt=4, max_tokens=2), request("b", prompt=20, max_tokens=2))

    plan = _step(Driver(scheduler))

    assert [len(table) for table in plan.tables] == [5, 6]


def test_the_naive_reservation_holds_max_model_len_for_each() -> None:
    """kv_reservation model_len: 128 positions whatever is asked for."""
    scheduler = _static(batch_size=2, kv_reservation="model_len")
    submit(scheduler, request("a"), request("b"))

    plan = _step(Driver(scheduler))

    assert [len(table) for table in plan.tables] == [8, 8]
    assert scheduler.usage().kv_reserved_unused == 2 * (128 - 8)


def test_a_batch_ends_before_the_first_whose_reservation_does_not_fit() -> None:
    """Of three that need 3 blocks each seven blocks take two; the third is told so and leads the next batch."""
    scheduler = _static(block_size=4, num_blocks=7)
    submit(scheduler, *(request(name, prompt=8, max_tokens=4) for name in "abc"))
    driver = Driver(scheduler)

    plan = _step(driver)

    assert plan.request_ids == ("a", "b")
    (cut,) = [one for one in plan.decisions if one.reason is Reason.CUT_BY_MEMORY]
    assert (cut.request_id, cut.numbers) == ("c", {"needed": 9, "free_blocks": 7, "members": 2})
    assert plan.forecast is not None
    assert plan.forecast.members == 2
    scheduler.end_input(driver.now)
    assert list(driver.run().finished) == ["a", "b", "c"]


def test_a_long_prompt_that_stretches_the_padding_may_cut_the_batch() -> None:
    """Memory is counted with everybody padded to the newcomer's prompt, not with the newcomer alone."""
    scheduler = _static(block_size=4, num_blocks=11)
    submit(scheduler, request("a", prompt=4), request("b", prompt=4), request("c", prompt=16))

    assert _step(Driver(scheduler)).request_ids == ("a", "b")
    assert blocks_of(8, 4) * 2 + blocks_of(20, 4) <= 11, "each with its own reservation they would fit"


def test_sharing_and_eviction_in_one_admission_agree() -> None:
    """The batch's first member evicts what its second hoped to share: both still get all their blocks."""
    scheduler = _static(batch_size=2, block_size=2, num_blocks=12, padding="none")
    known = request("known", prompt=10, max_tokens=2)
    other = request("other", prompt=2, max_tokens=2)
    submit(scheduler, known, other)
    driver = Driver(scheduler)
    driver.run()
    assert scheduler.usage().kv_cached >= 5

    again = request("again", prompt=known.prompt, max_tokens=2)
    submit(scheduler, request("new", prompt=10, max_tokens=2), again, now=driver.now)
    driver.run()

    assert driver.log.tokens["again"] == driver.log.tokens["known"]
    scheduler.check_integrity()


def test_members_share_a_prefix_that_is_known() -> None:
    """The shared blocks are held once, are not computed again, and the forecast counts each of them once."""
    scheduler = _static(batch_size=2, block_size=4)
    known = request("known", prompt=16, max_tokens=1)
    submit(scheduler, known, request("other", prompt=1, max_tokens=1))
    driver = Driver(scheduler)
    driver.run()

    submit(scheduler, *(request(name, prompt=[*known.prompt, 7], max_tokens=3) for name in "ab"), now=driver.now)
    plan = _step(driver)

    assert plan.starts == (16, 16)
    assert plan.tables[0][:4] == plan.tables[1][:4]
    assert plan.forecast is not None
    assert plan.forecast.blocks == scheduler.usage().kv_used == 4 + 1 + 1
    assert scheduler.counters.prefix_hits == 32


def test_the_forecast_of_a_batch_comes_true() -> None:
    """Blocks exactly; steps and duration as an upper bound that is met when everybody generates max_tokens."""
    scheduler = _static(batch_size=2, max_num_batched_tokens=32)
    warm = [request(f"warm{i}", prompt=10 + i, max_tokens=9 + i) for i in range(4)]
    submit(scheduler, *warm)
    driver = Driver(scheduler)
    driver.run()
    submit(scheduler, request("a", prompt=25, max_tokens=12), request("b", prompt=9, max_tokens=5), now=driver.now)
    began = driver.now
    steps = len(driver.log.plans)

    plan = _step(driver)

    forecast = plan.forecast
    assert forecast is not None
    assert (forecast.batch, forecast.members, forecast.reason) == (3, 2, Reason.BATCH_FULL)
    assert forecast.blocks == scheduler.usage().kv_used
    assert _step(driver).forecast is None
    driver.run()
    assert forecast.prefill_steps + forecast.decode_steps == len(driver.log.plans) - steps
    assert (forecast.prefill_steps, forecast.decode_steps) == (2, 11)
    assert forecast.duration is not None
    assert forecast.duration == pytest.approx(driver.now - began, rel=0.01)


def test_an_aborted_first_step_tells_its_forecast_again() -> None:
    """The batch stands, with its blocks; only the step is planned anew."""
    scheduler = _static(batch_size=1)
    submit(scheduler, request())
    first = scheduler.plan(0)
    assert isinstance(first, StepPlan)
    scheduler.abort(first, MILLISECOND)

    second = scheduler.plan(MILLISECOND)

    assert isinstance(second, StepPlan)
    assert second.forecast == first.forecast
    assert (second.tokens, second.tables, second.step) == (first.tokens, first.tables, first.step)
    assert scheduler.counters.batches == 1


def test_whatever_the_order_the_oldest_is_in_the_next_batch() -> None:
    """shortest_prompt and priority cannot starve anybody in a closed batch."""
    for order in ("shortest_prompt", "priority"):
        scheduler = _static(batch_size=2, queue_order=order)
        submit(scheduler, request("old", prompt=50, priority=9), request("x", prompt=9, priority=1), now=0)
        submit(scheduler, request("y", prompt=3, priority=0), now=1)

        assert set(_step(Driver(scheduler, now=2)).request_ids) == {"old", "y"}


def test_static_holds_until_its_batch_is_full_and_books_it() -> None:
    """Lawful waiting: not stalled, named BATCH_NOT_FULL, no time to wake at, and booked as held."""
    scheduler = _static(batch_size=2)
    submit(scheduler, request("a"))

    assert scheduler.plan(10) == Wait(None, Reason.BATCH_NOT_FULL)
    assert scheduler.health().ok
    assert scheduler.ledger.report(25).times[Category.HELD] == 15
    submit(scheduler, request("b"), now=30)
    assert isinstance(scheduler.plan(30), StepPlan)


def test_dynamic_leaves_when_the_delay_is_over() -> None:
    """The hold names the moment, counted from the oldest arrival; at that moment the batch leaves unfilled."""
    scheduler = make_scheduler(policy="dynamic", max_batch_size=4, max_queue_delay=50, max_model_len=64)
    submit(scheduler, request("a", arrival=3), now=10)
    assert scheduler.plan(10) == Wait(53, Reason.BATCH_NOT_FULL)
    submit(scheduler, request("b"), now=20)
    assert scheduler.plan(52) == Wait(53, Reason.BATCH_NOT_FULL)

    plan = scheduler.plan(53)

    assert isinstance(plan, StepPlan)
    assert plan.request_ids == ("a", "b")
    assert plan.forecast is not None
    assert plan.forecast.reason is Reason.DELAY_OVER


def test_dynamic_is_asked_again_when_the_device_is_free() -> None:
    """With one preferred size of 2, five that wait leave as 2, 2 and, when the delay is over, 1."""
    scheduler = make_scheduler(
        policy="dynamic", max_batch_size=4, preferred_batch_sizes=(2,), max_queue_delay=10**12, max_model_len=64
    )
    submit(scheduler, *(request(f"r{i}", max_tokens=2) for i in range(5)))
    log = Driver(scheduler).run()

    batches = [plan.forecast for plan in log.plans if plan.forecast]
    assert [(one.members, one.reason) for one in batches] == [
        (2, Reason.PREFERRED_SIZE),
        (2, Reason.PREFERRED_SIZE),
        (1, Reason.DELAY_OVER),
    ]


class HalfRefusing(BlockPool):
    """Gives blocks to two tables, and then no more."""

    given = 0

    def allocate(self, table: Any, count: int) -> bool:
        self.given += 1
        return self.given <= 2 and super().allocate(table, count)


def test_a_pool_that_refuses_half_way_makes_a_smaller_batch() -> None:
    """Whoever has its blocks runs; the others keep their places in the queue."""
    pool = HalfRefusing(64, 16)
    scheduler = _static(pool=pool)
    submit(scheduler, request("a"), request("b"), request("c"))

    plan = scheduler.plan(0)

    assert isinstance(plan, StepPlan)
    assert plan.request_ids == ("a", "b")
    assert scheduler.usage().waiting == 1
    scheduler.check_integrity()
    scheduler.commit(plan, any_outcome(plan), 10)
