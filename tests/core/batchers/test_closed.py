from typing import Any

import pytest

from chairlift.core.plan import Finished, RowKind, StepOutcome, StepPlan
from chairlift.core.request import FinishReason
from chairlift.core.scheduler import Scheduler
from tests.core.helpers import Driver, drive, make_scheduler, request, submit


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


def test_a_batch_of_one_is_a_batch() -> None:
    """batch_size 1: no padding, no dead rows, one after the other."""
    scheduler = _static(batch_size=1)
    log = drive(scheduler, *(request(f"r{i}", prompt=3 + i, max_tokens=2 + i) for i in range(3)))
    tokens = scheduler.ledger.report().tokens
    assert (tokens.padding, tokens.dead) == (0, 0)
    assert list(log.finished) == ["r0", "r1", "r2"]
