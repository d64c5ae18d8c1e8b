"""What users of other servers reported, and what must be impossible here.

The numbers are those of the threads at block size 16; at 1 and 32 the pool holds as many positions in blocks of that
size. T6 to T8 concern the server and the runner.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from chairlift.core.blocks import BlockPool
from chairlift.core.config import POLICIES, PolicyName
from chairlift.core.plan import Finished, RowKind, StepPlan, Wait
from chairlift.core.reasons import Reason
from chairlift.core.request import Accepted, FinishReason, Refused
from chairlift.core.scheduler import Scheduler
from chairlift.runners.fake import FakeRunner
from tests.core.helpers import (
    BLOCK_SIZES,
    Driver,
    blocks_of,
    drive,
    make_scheduler,
    plans_of,
    request,
    solo_tokens,
    submit,
)
from tests.core.strategies import SEEDS, VOCABULARY, random_request, random_setup

at_block_sizes = pytest.mark.parametrize("block_size", BLOCK_SIZES)
under_policies = pytest.mark.parametrize("policy", POLICIES)


def _scheduler(block_size: int, *, blocks_of_16: int, **fields: Any) -> Scheduler:
    """A pool of as many positions as so many blocks of 16 have."""
    return make_scheduler(num_blocks=blocks_of_16 * 16 // block_size, block_size=block_size, **fields)


@at_block_sizes
@under_policies
def test_t1_a_request_larger_than_the_pool_is_refused_at_the_door(block_size: int, policy: PolicyName) -> None:
    """T1 (vllm 39734): 50 blocks, max_model_len 2048, prompt 1002: refused at submit with the usable tokens and the
    setting to raise, and nothing waits.
    """
    scheduler = _scheduler(block_size, blocks_of_16=50, max_model_len=2048, policy=policy)

    verdict = scheduler.submit(request(prompt=1002, max_tokens=64), now=0)

    assert isinstance(verdict, Refused)
    assert (verdict.reason, verdict.setting) == (Reason.NEVER_FITS, "num_kv_blocks")
    assert (verdict.needed, verdict.limit) == (blocks_of(1066, block_size), 800 // block_size)
    assert "(800 tokens)" in verdict.message
    assert f"--num-kv-blocks {verdict.needed}" in verdict.message
    assert scheduler.plan(0) == Wait(None, Reason.QUEUE_EMPTY)
    assert not scheduler.has_work


@at_block_sizes
@pytest.mark.parametrize("blocks_of_16", [69, 64, 62])
@under_policies
def test_t2_near_the_end_of_the_pool_a_request_finishes_or_is_refused(
    block_size: int, blocks_of_16: int, policy: PolicyName
) -> None:
    """T2 (vllm PR 52530): 69 blocks, max_model_len 1024, prompt 1000 + max_tokens 24: finishes, or is refused before
    its first token; also with 64 blocks, which it fills exactly, and 62, which are too few.
    """
    scheduler = _scheduler(block_size, blocks_of_16=blocks_of_16, max_model_len=1024, policy=policy)
    verdict = scheduler.submit(request(prompt=1000, max_tokens=24), 0)

    if blocks_of_16 == 62:
        assert isinstance(verdict, Refused)
        return
    assert isinstance(verdict, Accepted)
    scheduler.end_input(0)
    log = Driver(scheduler).run(most=100)
    assert log.finished["r"] == Finished("r", FinishReason.LENGTH, 24)
    assert scheduler.counters.preemptions == 0


@at_block_sizes
@pytest.mark.parametrize("max_tokens", [None, 1, 2])
@pytest.mark.parametrize("prompt", [63, 64, 65])
@under_policies
def test_t3_at_the_edge_of_max_model_len_with_a_pool_exactly_full(
    block_size: int, max_tokens: int | None, prompt: int, policy: PolicyName
) -> None:
    """T3 (vllm PR 29633, 42381): prompts of max_model_len - 1, equal and + 1 in a pool of exactly max_model_len: finish
    reason length, or refused; no loop.
    """
    scheduler = _scheduler(block_size, blocks_of_16=4, max_model_len=64, max_num_batched_tokens=64, policy=policy)
    verdict = scheduler.submit(request(prompt=prompt, max_tokens=max_tokens), 0)

    if prompt + (max_tokens or 1) > 64:
        assert isinstance(verdict, Refused)
        assert (verdict.reason, verdict.limit) == (Reason.PROMPT_TOO_LONG, 64)
        return
    assert verdict == Accepted("r", 1)
    scheduler.end_input(0)
    log = Driver(scheduler).run(most=3)
    assert log.finished["r"] == Finished("r", FinishReason.LENGTH, 1)
    assert scheduler.usage().kv_used == 0


@at_block_sizes
def test_t3_an_answer_runs_into_max_model_len_and_the_last_block(block_size: int) -> None:
    """T3: a request without max_tokens goes on to max_model_len, and computes all positions but its last token's."""
    scheduler = _scheduler(block_size, blocks_of_16=4, max_model_len=64)
    log = drive(scheduler, request(prompt=10, max_tokens=None))
    assert log.finished["r"] == Finished("r", FinishReason.LENGTH, 54)
    assert max(width for widths in log.widths for width in widths) == blocks_of(63, block_size)


@at_block_sizes
def test_t4_the_number_of_sequences_is_kept_across_steps(block_size: int) -> None:
    """T4 (nano-vllm PR 265): max_num_seqs 2, three requests: for 30 steps the third waits and the two others get
    their token in every step; then it is served.
    """
    scheduler = _scheduler(block_size, blocks_of_16=64, max_num_seqs=2)
    submit(scheduler, *(request(name, prompt=8, max_tokens=40) for name in ("a", "b", "c", "d")))
    driver = Driver(scheduler)

    plans = list(plans_of(driver.steps(30)))

    assert [plan.request_ids for plan in plans] == [("a", "b")] * 30
    assert {len(driver.log.tokens[name]) for name in ("a", "b")} == {30}
    assert max(len(plan) for plan in plans_of(driver.steps(300))) == 2
    assert list(driver.log.finished) == ["a", "b", "c", "d"], "first come, first served"


@at_block_sizes
def test_t5_arriving_prompts_never_take_a_token_from_a_running_answer(block_size: int) -> None:
    """T5 (sglang 32549): one decoder, and a 2,000-token prompt arriving in each of 100 steps: the decoder gets a token
    in every step, and no step exceeds max_num_batched_tokens.
    """
    scheduler = _scheduler(block_size, blocks_of_16=700, max_model_len=4096, max_num_batched_tokens=256)
    driver = Driver(scheduler)
    submit(scheduler, request("decoder", prompt=10, max_tokens=200))
    driver.step()
    for number in range(100):
        submit(scheduler, request(f"long{number}", prompt=range(number, number + 2000), max_tokens=2), now=driver.now)

        plan = driver.step()

        assert isinstance(plan, StepPlan)
        assert sum(plan.counts) <= 256
        assert plan.request_ids[0] == "decoder"
        assert len(driver.log.tokens["decoder"]) == number + 2
    assert driver.log.finished.keys() >= {"long0", "long5"}, "and prompts are not starved either"


@at_block_sizes
def test_t9_equals_never_preempt_each_other_in_turn(block_size: int) -> None:
    """T9 (vllm 40004): two priorities, equal arrivals, blocks for two of four: only one that is later in the total
    order gives way, the first never does, and all end.
    """
    scheduler = _scheduler(block_size, blocks_of_16=8, max_model_len=128, watermark=0.0)
    for name, priority in (("low1", 1), ("low2", 1), ("high1", 0), ("high2", 0)):
        submit(scheduler, request(name, prompt=16, max_tokens=48, priority=priority, arrival=0))
    order = ["high1", "high2", "low1", "low2"]
    driver = Driver(scheduler)
    pairs = set()

    while scheduler.has_work:
        plan = driver.step()
        assert isinstance(plan, StepPlan)
        for decision in plan.decisions:
            if decision.reason is Reason.PREEMPTED:
                beneficiary = ("low1", "low2", "high1", "high2")[decision.numbers["for_number"]]
                pairs.add((decision.request_id, beneficiary))

    assert pairs, "the pool is too small for all four"
    assert all(order.index(victim) >= order.index(other) for victim, other in pairs)
    assert not any((other, victim) in pairs for victim, other in pairs if victim != other)
    assert "high1" not in driver.log.preempted
    assert driver.log.finished.keys() == set(order)


@at_block_sizes
def test_t9_a_preempted_request_keeps_its_place(block_size: int) -> None:
    """T9 (vllm 41951): one that came back to the queue is admitted before whoever arrived after it."""
    scheduler = _scheduler(block_size, blocks_of_16=6, max_model_len=96, watermark=0.0)
    submit(scheduler, request("first", prompt=30, max_tokens=60), request("second", prompt=30, max_tokens=60))
    driver = Driver(scheduler)
    while "second" not in driver.log.preempted:
        driver.step()
        assert driver.log.finished == {}
    submit(scheduler, request("later", prompt=4, max_tokens=4, arrival=driver.now), now=driver.now)

    driver.run()

    assert driver.log.finished.keys() == {"first", "second", "later"}
    rows = [row for plan in driver.log.plans for row in zip(plan.request_ids, plan.kinds, strict=True)]
    assert rows.index(("second", RowKind.RECOMPUTE)) < rows.index(("later", RowKind.PREFILL))


@at_block_sizes
@pytest.mark.parametrize("release", [None, "token"])
@pytest.mark.parametrize("stage", ["queued", "prefilling", "decoding", "in flight"])
@under_policies
def test_t10_a_client_that_leaves_frees_its_blocks_within_one_step(
    block_size: int, release: Any, stage: str, policy: PolicyName
) -> None:
    """T10 (Starlette's silent disconnects): queued, in its prompt or decoding, streamed or not: it has left by the end
    of the step, its blocks are free, and the counters add up.
    """
    scheduler = _scheduler(
        block_size,
        blocks_of_16=64,
        policy=policy,
        release=release,
        max_num_batched_tokens=64,
        max_num_seqs=2,
        batch_size=2,
        max_batch_size=2,
        max_queue_delay=0,
        enable_prefix_caching=False,
    )
    submit(scheduler, request("gone", prompt=100, max_tokens=20), request("stays", prompt=100, max_tokens=20))
    driver = Driver(scheduler)
    driver.steps({"queued": 0, "prefilling": 1, "decoding": 6, "in flight": 6}[stage])
    held = scheduler.usage().kv_used

    if stage == "in flight":
        plan = scheduler.plan(driver.now)
        assert isinstance(plan, StepPlan)
        driver.log.take(scheduler.cancel("gone", driver.now))
        assert "gone" not in driver.log.finished, "not under the device's hands"
        driver.log.take(scheduler.commit(plan, driver.runner.execute(plan), driver.now))
    else:
        driver.log.take(scheduler.cancel("gone", driver.now))

    assert driver.log.finished["gone"].reason is FinishReason.CANCELLED
    scheduler.check_integrity()
    if held:
        assert scheduler.usage().kv_used <= held - held // 2 + 1
    scheduler.end_input(driver.now)
    driver.run()
    assert scheduler.usage().kv_used == 0
    counters = scheduler.counters
    assert counters.finished[FinishReason.CANCELLED] == counters.finished[FinishReason.LENGTH] == 1
    assert counters.accepted == sum(counters.finished.values())
    assert counters.output_tokens == sum(one.output_tokens for one in driver.log.finished.values())
    assert driver.log.tokens["stays"] == solo_tokens(request("stays", prompt=100), 20)[0]


@at_block_sizes
def test_t11_a_recompute_is_no_prefix_hit(block_size: int) -> None:
    """T11 (vllm 25780): forced preemption on random prompts: the hit counter stays where it was, and what a sequence
    finds again of its own is counted apart.
    """
    scheduler = _scheduler(block_size, blocks_of_16=12, max_model_len=128, watermark=0.0)
    draw = Random(1)
    requests = [request(f"r{i}", prompt=[draw.randrange(50_000) for _ in range(40)], max_tokens=80) for i in range(4)]

    log = drive(scheduler, *requests)

    counters = scheduler.counters
    assert counters.preemptions > 0
    assert (counters.prefix_hits, counters.prefix_queries) == (0, 160)
    assert counters.recompute_saved > 0
    assert scheduler.ledger.report().tokens.prefill == 160
    for one in requests:
        assert log.tokens[one.request_id] == solo_tokens(one, 80)[0]


class Refusing(BlockPool):
    """An allocator that says it has blocks and gives none, for as long as it is told to."""

    refuses = True

    def allocate(self, table: Any, count: int) -> bool:
        return not self.refuses and super().allocate(table, count)

    def allocate_each(self, tables: Sequence[Any]) -> bool:
        return not self.refuses and super().allocate_each(tables)


@at_block_sizes
@under_policies
def test_t12_an_allocator_that_refuses_for_ever_turns_health_red(block_size: int, policy: PolicyName) -> None:
    """T12 (vllm 53130): work is pending and cannot be scheduled: no empty step and no loop, but health red with the
    cause, since when, and green again once it works.
    """
    pool = Refusing(64, block_size)
    scheduler = make_scheduler(num_blocks=64, block_size=block_size, pool=pool, policy=policy, max_model_len=64)
    submit(scheduler, request("a"), request("b"))
    scheduler.end_input(0)
    assert scheduler.health().ok

    for now in range(5, 55, 10):
        wait = scheduler.plan(now)
        assert isinstance(wait, Wait)
        assert (wait.until, wait.reason) == (None, Reason.STALLED)
        health = scheduler.health()
        assert (health.ok, health.since, health.cause) == (False, 5, wait.detail)
    assert "2 requests wait and none runs" in scheduler.health().cause
    assert "64 of 64" in scheduler.health().cause
    assert not scheduler._state.decisions or len(scheduler._state.decisions) <= 6, "nothing piles up"

    pool.refuses = False
    log = Driver(scheduler, now=100).run()
    assert scheduler.health().ok
    assert log.finished.keys() == {"a", "b"}


@at_block_sizes
def test_t12_an_allocator_that_stops_giving_in_mid_run_turns_health_red(block_size: int) -> None:
    """T12: running sequences give way one after the other, then nothing can be scheduled, and that is said; during a
    drain too.
    """
    for target in (None, "static"):
        pool = Refusing(64, block_size)
        pool.refuses = False
        scheduler = make_scheduler(num_blocks=64, block_size=block_size, pool=pool, max_model_len=64)
        submit(scheduler, request("a", max_tokens=40), request("b", max_tokens=40))
        driver = Driver(scheduler)
        driver.steps(3)
        if target is not None:
            scheduler.switch_policy("static", driver.now)
        pool.refuses = True

        answers = driver.steps(60)

        assert [answer.reason for answer in answers if isinstance(answer, Wait)][-1] is Reason.STALLED
        assert not scheduler.health().ok
        assert all(len(plan) > 0 for plan in plans_of(answers))
        pool.refuses = False
        assert driver.run().finished.keys() == {"a", "b"}
        assert scheduler.config.policy == (target or "continuous")


class NoGrowth(BlockPool):
    """An allocator that admits, and refuses growth for as long as it is told to."""

    refuses = True

    def allocate(self, table: Any, count: int) -> bool:
        return not (self.refuses and len(table)) and super().allocate(table, count)

    def allocate_each(self, tables: Sequence[Any]) -> bool:
        return not self.refuses and super().allocate_each(tables)


@at_block_sizes
def test_t12_the_last_one_alone_that_gets_no_block_is_not_recomputed_for_ever(block_size: int) -> None:
    """T12, vllm PR 52530: a sequence that is alone and is refused a block is no victim of its own: health turns red
    with the cause and nothing is computed again; when the allocator works, it goes on where it was.
    """
    pool = NoGrowth(64, block_size)
    scheduler = make_scheduler(num_blocks=64, block_size=block_size, pool=pool, max_model_len=64, watermark=0.0)
    submit(scheduler, request("a", prompt=3 * block_size if block_size == 1 else 1, max_tokens=40))
    driver = Driver(scheduler)

    answers = driver.steps(60)

    assert [answer.reason for answer in answers if isinstance(answer, Wait)][-1] is Reason.STALLED
    assert "runs alone and gets no KV block" in scheduler.health().cause
    assert scheduler.counters.preemptions == 0
    pool.refuses = False
    log = driver.run()
    assert log.tokens["a"] == solo_tokens(request("a", prompt=3 if block_size == 1 else 1), 40)[0]
    assert scheduler.ledger.report().tokens.recompute == 0


@at_block_sizes
@settings(max_examples=max(15, settings().max_examples // 10))
@given(seed=SEEDS)
def test_t13_the_same_tokens_whatever_the_policy(block_size: int, seed: int) -> None:
    """T13: one random load under all three policies, with and without prefix caching: every request ends with the
    tokens that it has alone. The state machine does the rest of T13.
    """
    for policy in POLICIES:
        for caching in (True, False):
            of_this = {"max_queued_requests": 0, "max_queued_tokens": 0, "enable_prefix_caching": caching}
            setup = random_setup(seed, policy=policy, kv_reservation=None, padding=None, release=None, **of_this)
            scheduler = make_scheduler(
                num_blocks=blocks_of(setup.config.max_model_len, block_size) + seed % 7,
                block_size=block_size,
                **{name: getattr(setup.config, name) for name in setup.config.__slots__},
            )
            requests = [random_request(f"r{i}", setup, 0, seed) for i in range(8)]
            accepted = {one.request_id: scheduler.submit(one, 0) for one in requests}
            scheduler.end_input(0)
            capacity = scheduler.capacity
            runner = FakeRunner(num_blocks=capacity.num_blocks, block_size=block_size, vocabulary=VOCABULARY)
            log = Driver(scheduler, runner).run()
            for one in requests:
                verdict = accepted[one.request_id]
                if isinstance(verdict, Accepted):
                    tokens, reason = solo_tokens(one, verdict.max_tokens, VOCABULARY)
                    assert (log.tokens[one.request_id], log.finished[one.request_id].reason) == (tokens, reason)
            assert scheduler.usage().kv_used == 0


@at_block_sizes
def test_closed_batches_really_pay_for_padding_and_dead_rows(block_size: int) -> None:
    """The straggler example: seven short answers and a long one: the seven ride along, as rows that are computed."""
    scheduler = _scheduler(block_size, blocks_of_16=64, policy="static", batch_size=8, max_num_batched_tokens=1024)
    short = [request(f"short{i}", prompt=10, max_tokens=5) for i in range(7)]
    log = drive(scheduler, *short, request("long", prompt=30, max_tokens=40))

    tokens = scheduler.ledger.report().tokens
    assert (tokens.prefill, tokens.padding) == (7 * 10 + 30, 7 * 20)
    assert (tokens.decode, tokens.dead) == (7 * 4 + 39, 7 * 35)
    assert {len(plan) for plan in log.plans} == {8}
    assert sum(kind is RowKind.DEAD for plan in log.plans for kind in plan.kinds) == 7 * 35
