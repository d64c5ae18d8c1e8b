from dataclasses import FrozenInstanceError

import pytest

from chairlift.core.plan import Finished, StepEvents, StepPlan, TokenCounts
from chairlift.core.reasons import Decision, Reason
from chairlift.core.request import FinishReason
from tests.core.helpers import make_scheduler, request, submit


def test_every_computed_token_is_of_one_kind() -> None:
    """The total is the sum of the kinds, useful is prefill and decode, and counts add up kind by kind."""
    counts = TokenCounts(prefill=1, decode=2, recompute=4, padding=8, dead=16)

    assert (counts.total, counts.useful) == (31, 3)
    assert counts + TokenCounts(prefill=1, dead=1) == TokenCounts(2, 2, 4, 8, 17)


def test_a_plan_is_frozen_and_knows_which_rows_sample() -> None:
    """Rows are columns; the sampled ones are in ascending order, as the outcome's tokens are."""
    scheduler = make_scheduler(max_num_batched_tokens=40)
    submit(scheduler, request("whole", prompt=30), request("chunk", prompt=30))

    plan = scheduler.plan(0)

    assert isinstance(plan, StepPlan)
    assert (len(plan), plan.counts, plan.samples, plan.sampled_rows) == (2, (30, 10), (True, False), (0,))
    with pytest.raises(FrozenInstanceError):
        plan.step = 3  # type: ignore[misc]


def test_events_are_joined_in_order() -> None:
    """What several calls told is told once, in the order in which it happened; nothing is told as nothing."""
    decision = Decision(0, "a", Reason.FINISHED, {})
    first = StepEvents(["a"], [1], (Finished("a", FinishReason.STOP, 1),))
    second = StepEvents(("b",), (2,), preempted=("c",), decisions=(decision,))

    joined = StepEvents.joined([StepEvents(), first, second])

    assert (list(joined.request_ids), list(joined.tokens)) == (["a", "b"], [1, 2])
    assert joined.finished == first.finished
    assert (joined.preempted, joined.decisions) == (("c",), (decision,))
    assert StepEvents.joined([StepEvents(), first]) is first
    assert not StepEvents.joined([]).tokens
