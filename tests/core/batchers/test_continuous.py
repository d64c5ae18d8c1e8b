from typing import Any

import pytest

from chairlift.core.plan import Finished, RowKind, StepPlan, Wait
from chairlift.core.reasons import Decision, Reason
from chairlift.core.request import FinishReason
from chairlift.core.scheduler import Scheduler
from tests.core.helpers import Driver, make_scheduler, plans_of, request, solo_tokens, submit


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


def test_who_waits_enters_at_once_and_who_has_finished_leaves_at_once() -> None:
    """A prompt joins the decodes in the step after its arrival, and nobody's row runs on after its end."""
    scheduler = _continuous()
    submit(scheduler, request("a", prompt=5, max_tokens=3))
    driver = Driver(scheduler)
    _step(driver)
    submit(scheduler, request("b", prompt=4, max_tokens=9), now=driver.now)

    second, third, fourth = _step(driver), _step(driver), _step(driver)

    assert (second.request_ids, second.kinds) == (("a", "b"), (RowKind.DECODE, RowKind.PREFILL))
    assert (third.request_ids, third.single_token_rows) == (("a", "b"), 2)
    assert fourth.request_ids == ("b",)
    assert driver.log.finished["a"] == Finished("a", FinishReason.LENGTH, 3)


def test_a_prompt_is_computed_in_chunks_beside_the_decodes() -> None:
    """A prompt of 100 in a budget of 64 beside one decode: 63 tokens, then the other 37 and its first token."""
    scheduler = _continuous()
    submit(scheduler, request("a", prompt=5, max_tokens=9))
    driver = Driver(scheduler)
    _step(driver)
    submit(scheduler, request("long", prompt=100, max_tokens=3), now=driver.now)

    first, second, third = _step(driver), _step(driver), _step(driver)

    assert (first.counts, first.samples) == ((1, 63), (True, False))
    assert (second.starts, second.counts, second.samples) == ((6, 63), (1, 37), (True, True))
    assert third.kinds == (RowKind.DECODE, RowKind.DECODE)
    assert driver.log.tokens["long"] == solo_tokens(request("long", prompt=100), 3)[0][:2]
    assert _decisions(driver, "long") == [Reason.ACCEPTED, Reason.ADMITTED, Reason.CHUNKED]


def test_an_admitted_prompt_holds_its_whole_prompt_from_the_start() -> None:
    """Blocks for all of it are reserved with the first chunk, so that no chunk can be stuck half-way."""
    scheduler = _continuous(max_num_batched_tokens=40, num_blocks=8)
    submit(scheduler, request("a", prompt=100, max_tokens=3), request("b", prompt=40, max_tokens=3))
    driver = Driver(scheduler)

    plan = _step(driver)

    assert (plan.request_ids, len(plan.tables[0])) == (("a",), 7)
    assert scheduler.usage().kv_used == 7
    _step(driver)
    _step(driver)
    waiting = [one for plan in driver.log.plans for one in plan.decisions if one.request_id == "b"]
    assert waiting[-1].reason is Reason.WAITING_FOR_BLOCKS
    assert waiting[-1].numbers == {"needed": 3, "available": 1}


@pytest.mark.parametrize(("reservation", "blocks"), [(None, 1), ("prompt", 1), ("full", 3), ("model_len", 8)], ids=str)
def test_the_reservation_decides_what_an_admitted_request_holds(reservation: str | None, blocks: int) -> None:
    """Prompt 10 and 30 more, blocks of 16, max_model_len 128."""
    scheduler = _continuous(kv_reservation=reservation)
    submit(scheduler, request("a", prompt=10, max_tokens=30))

    assert len(_step(Driver(scheduler)).tables[0]) == blocks


def test_a_prefix_that_is_known_is_not_computed_again() -> None:
    """Full blocks are shared with whoever runs or has run; the last token is always computed."""
    scheduler = _continuous(block_size=4)
    first = request("first", prompt=16, max_tokens=6)
    submit(scheduler, first)
    driver = Driver(scheduler)
    driver.steps(2)
    submit(scheduler, request("same", prompt=first.prompt, max_tokens=3), now=driver.now)
    submit(scheduler, request("longer", prompt=[*first.prompt, 5, 6], max_tokens=3), now=driver.now)

    plan = _step(driver)

    assert plan.starts[1:] == (12, 16), "of a prompt of 16 the fourth block holds the last token"
    assert plan.counts[1:] == (4, 2)
    assert plan.tables[0][:3] == plan.tables[1][:3] == plan.tables[2][:3]
    assert scheduler.counters.prefix_hits == 12 + 16
    driver.run()
    assert driver.log.tokens["same"] == driver.log.tokens["first"][:3]


def test_a_block_is_shared_only_after_its_step_was_committed() -> None:
    """Two equal prompts in one step both compute: the content does not exist yet."""
    scheduler = _continuous(block_size=4)
    submit(scheduler, request("a", prompt=[1] * 9), request("b", prompt=[1] * 9))

    plan = _step(Driver(scheduler))

    assert plan.starts == (0, 0)
    assert not set(plan.tables[0]) & set(plan.tables[1])


def test_other_salts_share_nothing() -> None:
    """What changes the keys and values besides the tokens is part of a block's identity."""
    scheduler = _continuous(block_size=4)
    driver = Driver(scheduler)
    for name, salt in (("a", ""), ("b", "adapter"), ("c", "adapter")):
        submit(scheduler, request(name, prompt=[1] * 9, cache_salt=salt), now=driver.now)
        driver.run()
    assert scheduler.counters.prefix_hits == 8


def test_without_prefix_caching_nothing_is_shared_or_kept() -> None:
    """For comparisons: every prompt is computed."""
    scheduler = _continuous(block_size=4, enable_prefix_caching=False)
    driver = Driver(scheduler)
    for name in ("a", "b"):
        submit(scheduler, request(name, prompt=[1] * 9), now=driver.now)
        driver.run()
    assert scheduler.ledger.report().tokens.prefill == 18
    assert (scheduler.counters.prefix_hits, scheduler.usage().kv_cached) == (0, 0)


def test_an_admission_that_shares_idle_blocks_counts_them_as_taken() -> None:
    """Cached blocks that nobody uses are part of the free ones: sharing them leaves fewer for the rest."""
    scheduler = _continuous(block_size=4, num_blocks=6, max_model_len=24)
    known = request("known", prompt=15, max_tokens=1)
    submit(scheduler, known)
    driver = Driver(scheduler)
    driver.run()
    assert scheduler.usage().kv_cached == 3
    submit(scheduler, request("other", prompt=8, max_tokens=4), now=driver.now)
    _step(driver)

    submit(scheduler, request("again", prompt=[*known.prompt, 1, 2, 3], max_tokens=1), now=driver.now)
    plan = _step(driver)

    assert plan.request_ids == ("other",), "five blocks, three of them idle in the cache, do not fit in four"
    assert driver.run().finished.keys() == {"known", "other", "again"}


def test_prefill_interval_keeps_steps_for_decodes() -> None:
    """While at least half of max_num_seqs decode, prompts enter in every third step at most."""
    scheduler = _continuous(max_num_seqs=4, prefill_interval=3)
    submit(scheduler, request("a", max_tokens=40), request("b", max_tokens=40))
    driver = Driver(scheduler)
    _step(driver)
    with_prompts = []
    for number in range(9):
        submit(scheduler, request(f"r{number}", prompt=4, max_tokens=2), now=driver.now)
        plan = _step(driver)
        with_prompts.append(plan.single_token_rows < len(plan))

    assert with_prompts == [False, False, True] * 3


def test_target_itl_caps_the_steps_it_can_predict() -> None:
    """Once step times are known no step with decodes and prompt tokens exceeds the target; with no decodes there is no
    cap, and everybody is served.
    """
    target = 40_000_000
    scheduler = _continuous(target_itl=target, max_num_batched_tokens=64)
    driver = Driver(scheduler)
    submit(scheduler, *(request(f"warm{i}", prompt=7 + 13 * i, max_tokens=9) for i in range(4)))
    driver.run()
    submit(scheduler, request("answer", prompt=10, max_tokens=60), now=driver.now)
    _step(driver)
    submit(scheduler, *(request(f"long{i}", prompt=100, max_tokens=2) for i in range(5)), now=driver.now)

    before = driver.now
    times = []
    while "answer" not in driver.log.finished:
        plan = _step(driver)
        times.append(driver.now - before)
        before = driver.now
        if plan.single_token_rows and len(plan) > plan.single_token_rows:
            assert times[-1] < 1.1 * target
    assert max(times) > 0.8 * target, "the cap is used, not only kept"
    assert driver.run().finished.keys() >= {f"long{i}" for i in range(5)}


@pytest.mark.parametrize(
    "settings",
    [
        {"target_itl": 1},
        {"prefill_interval": 1000, "prefill_interval_load": 0.0},
        {"target_itl": 1, "prefill_interval": 1000, "prefill_interval_load": 0.0},
        {"target_itl": 1, "enable_chunked_prefill": False, "max_num_batched_tokens": 128},
    ],
)
def test_no_setting_starves_a_prompt_for_ever(settings: dict[str, Any]) -> None:
    """A target that no step can meet and an interval that never comes hold prompts up only while somebody decodes, and
    nobody new decodes meanwhile.
    """
    scheduler = _continuous(**settings)
    driver = Driver(scheduler)
    submit(scheduler, *(request(f"warm{i}", prompt=20, max_tokens=12) for i in range(2)))
    driver.run()
    for i in range(30):
        submit(scheduler, request(f"r{i}", prompt=100, max_tokens=5), now=driver.now)
        driver.steps(2)

    assert len(driver.run(most=2000).finished) == 32


def test_decisions_are_recorded_when_they_change() -> None:
    """A request that waits a hundred steps for a slot is one decision, not a hundred."""
    scheduler = _continuous(max_num_seqs=1)
    submit(scheduler, request("a", max_tokens=100), request("b", max_tokens=2))
    driver = Driver(scheduler)
    driver.run()

    made = [one for plan in driver.log.plans for one in plan.decisions if one.request_id == "b"]
    assert [one.reason for one in made] == [Reason.ACCEPTED, Reason.WAITING_FOR_SLOT, Reason.ADMITTED]
    assert made[1] == Decision(0, "b", Reason.WAITING_FOR_SLOT, {"needed": 1, "available": 0})
    assert made[2].step == 100


def test_a_running_sequence_that_grows_takes_one_block_at_a_time() -> None:
    """And only when its last block is full: the waste is at most one block less a position."""
    scheduler = _continuous(block_size=4, enable_prefix_caching=False)
    submit(scheduler, request("a", prompt=6, max_tokens=20))
    driver = Driver(scheduler)
    for plan in plans_of(driver.steps(19)):
        end = plan.starts[0] + plan.counts[0]
        assert driver.log.widths[plan.step][0] == -(-end // 4)


def test_a_short_queue_waits_for_nothing() -> None:
    """Idle, with nothing to wake up for."""
    assert _continuous().plan(3) == Wait(None, Reason.QUEUE_EMPTY)
