from typing import Any

import pytest

from chairlift.core.blocks import BlockPool
from chairlift.core.ledger import Category
from chairlift.core.plan import Finished, RowKind, StepOutcome, StepPlan, Wait
from chairlift.core.reasons import Reason
from chairlift.core.request import FinishReason
from chairlift.core.scheduler import Scheduler
from tests.core.helpers import MILLISECOND, Driver, any_outcome, blocks_of, drive, make_scheduler, request, submit


def _static(**fields: Any) -> Scheduler:
    defaults: dict[str, Any] = {"policy": "static", "batch_size": 3, "max_model_len": 128}
    return make_scheduler(**(defaults | fields))


def _step(driver: Driver) -> StepPlan:
    plan = driver.step()
    assert isinstance(plan, StepPlan)
    return plan


def test_a_batch_is_padded_to_its_longest_prompt_and_prefilled_together() -> None:
    """Prompts of 5, 9 and 2: three rows of nine tokens, and every one samples at its own last token."""
    scheduler = _static()
    submit(scheduler, request("a", prompt=5), request("b", prompt=9), request("c", prompt=2))

    plan = _step(Driver(scheduler))

    assert (plan.starts, plan.counts, plan.paddings) == ((0, 0, 0), (9, 9, 9), (4, 0, 7))
    assert plan.samples == (True, True, True)
    assert (plan.token_counts.prefill, plan.token_counts.padding) == (16, 11)
    assert plan.tokens[5:9] == (0, 0, 0, 0)


def test_without_padding_each_row_has_its_own_length() -> None:
    """With padding none no token is computed that nobody asked for; rows that are through rest until all are."""
    scheduler = _static(padding="none", max_num_batched_tokens=9)
    submit(scheduler, request("a", prompt=2), request("b", prompt=7), request("c", prompt=3))
    driver = Driver(scheduler)

    first, second, third = _step(driver), _step(driver), _step(driver)

    assert (first.counts, first.samples) == ((2, 3, 3), (True, False, True))
    assert (second.request_ids, second.counts, second.samples) == (("b",), (4,), (True,))
    assert third.kinds == (RowKind.DECODE,) * 3
    assert scheduler.ledger.report().tokens.padding == 0


def test_long_prompts_are_computed_in_equal_chunks_within_the_budget() -> None:
    """Three prompts of up to 20 in a budget of 32: ten tokens each and ten again."""
    scheduler = _static(max_num_batched_tokens=32)
    submit(scheduler, request("a", prompt=5), request("b", prompt=20), request("c", prompt=12))
    driver = Driver(scheduler)

    first, second = _step(driver), _step(driver)

    assert (first.counts, first.paddings, first.samples) == ((10, 10, 10), (5, 0, 0), (True, False, False))
    assert (second.counts, second.paddings, second.samples) == ((10, 10, 10), (10, 0, 8), (False, True, True))


def test_the_members_decode_in_lockstep_until_the_last_has_ended() -> None:
    """An ended member's row stays in every step, dead; nobody enters; then the next batch forms."""
    scheduler = _static(batch_size=2)
    submit(scheduler, *(request(name, max_tokens=n) for name, n in (("a", 2), ("b", 5), ("c", 1), ("d", 1))))
    driver = Driver(scheduler)

    kinds = [_step(driver).kinds for _ in range(5)]

    assert kinds == [
        (RowKind.PREFILL, RowKind.PREFILL),
        (RowKind.DECODE, RowKind.DECODE),
        (RowKind.DEAD, RowKind.DECODE),
        (RowKind.DEAD, RowKind.DECODE),
        (RowKind.DEAD, RowKind.DECODE),
    ]
    assert list(driver.log.finished) == ["a", "b"]
    assert _step(driver).request_ids == ("c", "d")


def test_a_dead_row_needs_no_new_block_and_writes_where_nobody_reads() -> None:
    """It computes its last token, within its own reservation, in a block that is not known to the prefix cache."""
    scheduler = _static(batch_size=2, block_size=4)
    submit(scheduler, request("a", prompt=8, max_tokens=1), request("b", prompt=8, max_tokens=9))
    driver = Driver(scheduler)
    _step(driver)
    used = scheduler.usage().kv_used

    plan = _step(driver)

    assert plan.kinds == (RowKind.DEAD, RowKind.DECODE)
    assert (plan.starts[0], plan.counts[0], plan.samples[0]) == (8, 1, False)
    assert scheduler.usage().kv_used == used
    assert scheduler._state.pool._keys[plan.tables[0][2]] is None


def test_a_failed_step_with_dead_rows_spoils_no_shared_block() -> None:
    """The step wrote garbage and its batch dissolved: who shares the dead member's prompt has its own tokens."""
    scheduler = _static(batch_size=2, block_size=4)
    short = request("short", prompt=8, max_tokens=1)
    submit(scheduler, short, request("long", prompt=8, max_tokens=20))
    driver = Driver(scheduler)
    driver.steps(3)
    driver.runner.broken_steps.add(3)
    scheduler.switch_policy("continuous", driver.now)
    driver.step()
    submit(scheduler, request("next", prompt=[*short.prompt, 5], max_tokens=4), now=driver.now)

    alone = drive(_static(batch_size=1), request("next", prompt=[*short.prompt, 5], max_tokens=4))

    assert driver.run().tokens["next"] == alone.tokens["next"]
    assert scheduler.counters.prefix_hits == 8


@pytest.mark.parametrize(
    ("release", "ends"),
    [("batch", {"a": 5, "b": 5}), ("request", {"a": 2, "b": 5}), ("token", {"a": 2, "b": 5})],
)
def test_release_says_when_results_leave(release: str, ends: dict[str, int]) -> None:
    """batch: together at the end; request: each when it ends; token: each token as it is computed."""
    scheduler = _static(batch_size=2, release=release)
    submit(scheduler, request("a", max_tokens=2), request("b", max_tokens=5))
    driver = Driver(scheduler)
    finished: dict[str, int] = {}
    streamed = []
    for step in range(1, 6):
        driver.step()
        finished |= {name: step for name in driver.log.finished if name not in finished}
        streamed.append(len(driver.log.tokens.get("b", [])))

    assert finished == ends
    assert streamed == {"batch": [0, 0, 0, 0, 5], "request": [0, 0, 0, 0, 5], "token": [1, 2, 3, 4, 5]}[release]


def test_a_cancelled_members_blocks_are_free_and_its_row_goes_on_on_scratch() -> None:
    """The batch keeps its shape: a dead row of one padding token on the scratch block, in decode and in prefill."""
    scheduler = _static(max_num_batched_tokens=32)
    submit(scheduler, *(request(name, prompt=30, max_tokens=9) for name in "abc"))
    driver = Driver(scheduler)
    _step(driver)
    used = scheduler.usage().kv_used

    driver.log.take(scheduler.cancel("b", driver.now))

    assert scheduler.usage().kv_used == used * 2 // 3
    for plan in driver.steps(4):
        assert isinstance(plan, StepPlan)
        row = plan.request_ids.index("b")
        assert (plan.kinds[row], plan.starts[row], plan.counts[row]) == (RowKind.DEAD, 0, 1)
        assert list(plan.tables[row]) == [scheduler.capacity.scratch_block]
        assert row < plan.single_token_rows
    driver.run()
    assert driver.log.finished["b"] == Finished("b", FinishReason.CANCELLED, 0)
    assert scheduler.usage().kv_used == 0


def test_a_batch_of_which_everybody_left_is_over() -> None:
    """The last cancellation ends it, and results that were held back leave."""
    scheduler = _static(batch_size=2)
    submit(scheduler, request("a", max_tokens=1), request("b", max_tokens=9), request("c"), request("d"))
    driver = Driver(scheduler)
    driver.steps(3)

    events = scheduler.cancel("b", driver.now)

    assert [one.request_id for one in events.finished] == ["b", "a"]
    assert list(events.request_ids) == ["a"]
    assert scheduler.usage().kv_used == 0
    driver.log.take(events)
    assert _step(driver).request_ids == ("c", "d")


def test_a_finished_result_that_is_held_back_leaves_whole_when_cancelled() -> None:
    """The cancellation crossed it: finish reason and tokens are those of its end, and its blocks are free."""
    scheduler = _static(batch_size=2)
    submit(scheduler, request("a", max_tokens=1), request("b", max_tokens=9))
    driver = Driver(scheduler)
    driver.steps(3)
    used = scheduler.usage().kv_used

    events = scheduler.cancel("a", driver.now)

    assert events.finished == (Finished("a", FinishReason.LENGTH, 1),)
    assert len(events.tokens) == 1
    assert scheduler.usage().kv_used < used
    driver.log.take(events)
    assert driver.run().finished["b"].reason is FinishReason.LENGTH
    assert scheduler.counters.finished[FinishReason.CANCELLED] == 0


def test_a_failure_on_the_first_token_ends_one_member_at_once() -> None:
    """Its error leaves whatever the release, its blocks are free, and the others do not notice."""
    scheduler = _static(batch_size=2)
    submit(scheduler, request("a"), request("b"))
    driver = Driver(scheduler)
    driver.runner.failing["a"] = "no finite logit"
    _step(driver)

    assert driver.log.finished == {"a": Finished("a", FinishReason.ERROR, 0, "no finite logit")}
    assert driver.run().finished["b"] == Finished("b", FinishReason.LENGTH, 4)


def test_a_failure_of_a_dead_row_concerns_nobody() -> None:
    """Its request has ended; the result that is held back is the one it had."""
    scheduler = _static(batch_size=2)
    submit(scheduler, request("a", max_tokens=1), request("b", max_tokens=3))
    driver = Driver(scheduler)
    _step(driver)
    plan = scheduler.plan(driver.now)
    assert isinstance(plan, StepPlan)
    outcome = driver.runner.execute(plan)

    events = scheduler.commit(plan, StepOutcome(outcome.tokens, 1, failures={0: "nan"}), driver.now + 1)

    assert events.finished == ()
    driver.log.take(events)
    driver.now += 1
    assert driver.run().finished["a"] == Finished("a", FinishReason.LENGTH, 1)


def test_an_id_may_come_again_while_its_dead_row_still_runs() -> None:
    """Released early, its id is free: the new request waits, and the old row goes on beside it until the batch ends."""
    scheduler = _static(batch_size=2, release="request", max_wait=1)
    submit(scheduler, request("a", prompt=4, max_tokens=1), request("b", prompt=4, max_tokens=6))
    driver = Driver(scheduler)
    _step(driver)
    first = driver.log.finished.pop("a")
    tokens = driver.log.tokens.pop("a")

    submit(scheduler, request("a", prompt=7, max_tokens=2), now=driver.now)
    assert _step(driver).kinds == (RowKind.DEAD, RowKind.DECODE)
    driver.run()

    assert (first.output_tokens, len(tokens)) == (1, 1)
    assert driver.log.finished["a"] == Finished("a", FinishReason.LENGTH, 2)
    scheduler.check_integrity()


def test_a_cancellation_of_an_id_that_came_again_means_the_newcomer() -> None:
    """The old one has left; its row is not touched."""
    scheduler = _static(batch_size=2, release="request")
    submit(scheduler, request("a", max_tokens=1), request("b", max_tokens=6))
    driver = Driver(scheduler)
    _step(driver)
    driver.log.finished.clear()
    submit(scheduler, request("a", max_tokens=2), now=driver.now)

    events = scheduler.cancel("a", driver.now)

    assert events.finished == (Finished("a", FinishReason.CANCELLED, 0),)
    assert _step(driver).kinds == (RowKind.DEAD, RowKind.DECODE)


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


def test_a_batch_of_one_is_a_batch() -> None:
    """batch_size 1: no padding, no dead rows, one after the other."""
    scheduler = _static(batch_size=1)
    log = drive(scheduler, *(request(f"r{i}", prompt=3 + i, max_tokens=2 + i) for i in range(3)))
    tokens = scheduler.ledger.report().tokens
    assert (tokens.padding, tokens.dead) == (0, 0)
    assert list(log.finished) == ["r0", "r1", "r2"]
