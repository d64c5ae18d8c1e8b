from array import array
from dataclasses import replace

import numpy as np
import pytest

from chairlift.core.errors import StepFailed
from chairlift.core.plan import RowKind, StepPlan, TokenCounts
from chairlift.runners.fake import FakeRunner, linear_time, next_token
from tests.core.helpers import Driver, make_scheduler, request, solo_tokens, submit


def _plan(*rows: tuple[RowKind, int, list[int], list[int], bool], step: int = 0) -> StepPlan:
    """Rows as (kind, start, tokens, table, samples), one-token rows first."""
    kinds, starts, tokens, tables, samples = zip(*rows, strict=True)
    return StepPlan(
        step=step,
        now=0,
        policy="continuous",
        request_ids=tuple(f"r{i}" for i in range(len(rows))),
        kinds=kinds,
        starts=starts,
        counts=tuple(len(one) for one in tokens),
        paddings=(0,) * len(rows),
        samples=samples,
        tokens=tuple(token for one in tokens for token in one),
        tables=tuple(array("i", table) for table in tables),
        single_token_rows=sum(kind in (RowKind.DECODE, RowKind.DEAD) for kind in kinds),
        token_counts=TokenCounts(),
    )


def _digest(*tokens: int) -> int:
    return next_token(np.array(tokens, dtype=np.int64).tobytes(), 50_000)


def test_a_token_is_a_digest_of_all_that_its_row_reads() -> None:
    """In one piece, in chunks, or token by token: the same context gives the same token."""
    whole = FakeRunner(num_blocks=4, block_size=2)
    assert whole.execute(_plan((RowKind.PREFILL, 0, [5, 6, 7], [2, 0], True))).tokens == [_digest(5, 6, 7)]

    chunked = FakeRunner(num_blocks=4, block_size=2)
    assert chunked.execute(_plan((RowKind.PREFILL, 0, [5, 6], [2, 0], False))).tokens == []
    assert chunked.execute(_plan((RowKind.DECODE, 2, [7], [2, 0], True))).tokens == [_digest(5, 6, 7)]


def test_it_reads_through_the_table_and_not_what_it_was_given() -> None:
    """A wrong or stale table gives another token: that is what makes equal tokens a test of the allocator."""
    runner = FakeRunner(num_blocks=4, block_size=2)
    runner.execute(_plan((RowKind.PREFILL, 0, [5, 6], [1], False)))

    assert runner.execute(_plan((RowKind.DECODE, 2, [7], [1, 0], True))).tokens == [_digest(5, 6, 7)]
    assert runner.execute(_plan((RowKind.DECODE, 2, [7], [3, 0], True))).tokens != [_digest(5, 6, 7)]


def test_padding_is_written_and_not_read_by_its_own_step() -> None:
    """Right-hand padding does not change the token, and is overwritten later."""
    runner = FakeRunner(num_blocks=4, block_size=4)
    plan = replace(_plan((RowKind.PREFILL, 0, [5, 6, 0, 0], [0], True)), paddings=(2,))

    assert runner.execute(plan).tokens == [_digest(5, 6)]
    assert runner.execute(_plan((RowKind.DECODE, 2, [7], [0], True))).tokens == [_digest(5, 6, 7)]


def test_a_dead_row_yields_nothing_and_may_lie_on_the_scratch_block() -> None:
    """Only a dead row may: one that is alive there is a fault."""
    runner = FakeRunner(num_blocks=4, block_size=2)
    scratch = runner.capacity().scratch_block
    assert scratch == 4

    assert runner.execute(_plan((RowKind.DEAD, 0, [0], [scratch], False))).tokens == []
    with pytest.raises(StepFailed, match="alive but on the scratch block"):
        runner.execute(_plan((RowKind.DECODE, 0, [1], [scratch], True)))


def test_a_table_that_is_too_short_fails_the_step() -> None:
    """The message has the row and both lengths."""
    runner = FakeRunner(num_blocks=4, block_size=2)
    with pytest.raises(StepFailed, match=r"row 0 \(r0\) writes 3 positions; its table holds 2"):
        runner.execute(_plan((RowKind.PREFILL, 0, [5, 6, 7], [1], True)))


def test_a_failing_request_fails_once_and_the_others_go_on() -> None:
    """Its next sampled row reports the message; the token beside it does not count."""
    runner = FakeRunner(num_blocks=4, block_size=2)
    runner.failing["r1"] = "no finite logit"
    plan = _plan((RowKind.DECODE, 0, [5], [0], True), (RowKind.DECODE, 0, [6], [1], True))

    first, second = runner.execute(plan), runner.execute(plan)

    assert first.failures == {1: "no finite logit"}
    assert first.tokens[0] == _digest(5)
    assert second.failures == {}


def test_a_failure_waits_for_a_row_that_samples() -> None:
    """A chunk in the middle of a prompt has no logits to be wrong."""
    runner = FakeRunner(num_blocks=4, block_size=2)
    runner.failing["r0"] = "x"
    assert runner.execute(_plan((RowKind.PREFILL, 0, [5], [0], False))).failures == {}
    assert runner.execute(_plan((RowKind.DECODE, 1, [6], [0], True))).failures == {0: "x"}


def test_a_broken_step_leaves_garbage_where_it_may_write_and_can_be_repeated() -> None:
    """StepFailed once: positions of the step are spoilt, no others, and the same plan executed again is right."""
    runner = FakeRunner(num_blocks=4, block_size=2)
    runner.execute(_plan((RowKind.PREFILL, 0, [5, 6], [1], False)))
    runner.broken_steps.add(3)
    plan = _plan((RowKind.DECODE, 2, [7], [1, 0], True), step=3)

    with pytest.raises(StepFailed, match="step 3 was scripted to fail"):
        runner.execute(plan)
    assert runner._memory[0] == -2
    assert list(runner._memory[2:4]) == [5, 6]
    assert runner.execute(plan).tokens == [_digest(5, 6, 7)]
    assert [one.step for one in runner.executed] == [0, 3]


def test_durations_are_scripted() -> None:
    """linear_time: something fixed, something a token, something a position read; or any function of the plan."""
    plan = _plan((RowKind.DECODE, 9, [1], [0, 1, 2, 3, 4], True), (RowKind.PREFILL, 0, [1, 2, 3], [5, 6], True))
    assert linear_time(100, 10, 1)(plan) == 100 + 10 * 4 + (10 + 3)

    runner = FakeRunner(num_blocks=8, block_size=2, duration=lambda plan: 42 + len(plan))
    assert runner.execute(plan).device_time == 44


def test_it_offers_the_pool_that_it_was_given() -> None:
    """Block size, usable blocks, and a scratch block beyond them."""
    capacity = FakeRunner(num_blocks=7, block_size=3).capacity()
    assert (capacity.block_size, capacity.num_blocks, capacity.scratch_block) == (3, 7, 7)


def test_what_it_is_told_is_kept_for_the_test() -> None:
    """forget() and close() are observable; there is no model whose work could be counted."""
    runner = FakeRunner()
    runner.forget("r7")
    runner.close()
    assert (runner.forgotten, runner.closed, runner.shape()) == (["r7"], True, None)


def test_driven_by_the_scheduler_it_gives_the_tokens_of_a_request_alone() -> None:
    """The reference of all tests is what comes out of the simplest run."""
    scheduler = make_scheduler()
    one = request(prompt=20, max_tokens=6)
    submit(scheduler, one)

    log = Driver(scheduler).run()

    assert log.tokens["r"] == solo_tokens(one, 6)[0]
