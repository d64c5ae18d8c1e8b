from dataclasses import dataclass, field
from typing import Any

import pytest

from chairlift.core.config import SchedulerConfig
from chairlift.core.policies.continuous import Continuous, Grant, Stop
from chairlift.core.reasons import Reason
from chairlift.core.sequence import Phase, Sequence
from tests.core.helpers import request


@dataclass
class View:
    """A step by hand: a grant moves the head of the queue to the prompts begun and takes its blocks."""

    decoding: int = 0
    begun: list[Sequence] = field(default_factory=list)
    queue: list[Sequence] = field(default_factory=list)
    free_blocks: int = 100
    watermark_blocks: int = 0
    steps_since_prefill: int = 9
    preempted_in_this_step: bool = False
    within: int | None = None
    block_size: int = 10

    @property
    def running_count(self) -> int:
        return self.decoding + len(self.begun)

    @property
    def prefilling(self) -> tuple[Sequence, ...]:
        return tuple(self.begun)

    def head(self) -> Sequence | None:
        return self.queue[0] if self.queue else None

    def blocks_needed(self, sequence: Sequence) -> int:
        return -(-sequence.length // self.block_size)

    def tokens_to_compute(self, sequence: Sequence) -> int:
        return sequence.length - sequence.computed

    def prompt_tokens_within(self, target: int) -> int | None:
        return self.within

    def carry_out(self, grant: Grant) -> None:
        if grant.sequence.phase is Phase.WAITING:
            self.queue.remove(grant.sequence)
            self.begun.append(grant.sequence)
            grant.sequence.phase = Phase.PREFILL
            self.free_blocks -= self.blocks_needed(grant.sequence)


def _sequence(number: int, prompt: int, computed: int = 0) -> Sequence:
    one = Sequence(request(f"r{number}", prompt=prompt), number=number, arrival=number, max_tokens=4)
    one.computed = computed
    return one


def _begun(number: int, prompt: int, computed: int) -> Sequence:
    one = _sequence(number, prompt, computed)
    one.phase = Phase.PREFILL
    return one


def _choices(view: View, **settings: Any) -> tuple[list[tuple[int, int]], Stop | None]:
    """Grants as (number, tokens), each carried out before the next, and what stopped them."""
    policy = Continuous(SchedulerConfig(**({"max_num_batched_tokens": 100, "max_num_seqs": 8} | settings)))
    grants: list[tuple[int, int]] = []
    for choice in policy.choose(view):
        if isinstance(choice, Stop):
            return grants, choice
        grants.append((choice.sequence.number, choice.tokens))
        view.carry_out(choice)
    return grants, None


def test_prompts_get_what_the_decodes_leave_of_the_budget() -> None:
    """Every decoding sequence has its token first: 100 less 3 is for prompts, in queue order, the last in a chunk."""
    view = View(decoding=3, queue=[_sequence(0, 60), _sequence(1, 60), _sequence(2, 5)])
    assert _choices(view) == ([(0, 60), (1, 37)], Stop(Reason.WAITING_FOR_BUDGET))


def test_a_prompt_begun_goes_before_the_queue() -> None:
    """Whoever holds blocks gets on first."""
    view = View(begun=[_begun(0, 90, 30)], queue=[_sequence(1, 60)])
    assert _choices(view)[0] == [(0, 60), (1, 40)]


def test_a_prompt_alone_may_use_the_whole_budget() -> None:
    """With nobody decoding a long prompt takes everything there is."""
    assert _choices(View(queue=[_sequence(0, 250)])) == ([(0, 100)], None)


def test_a_prompt_that_does_not_fit_whole_is_not_admitted_on_its_first_chunk() -> None:
    """250 tokens need 25 blocks: with 24 free nothing is granted, though a chunk would fit (vllm PR 37307)."""
    stop = _choices(View(queue=[_sequence(0, 250)], free_blocks=24, decoding=1))
    assert stop == ([], Stop(Reason.WAITING_FOR_BLOCKS, needed=25, available=24))
    assert _choices(View(queue=[_sequence(0, 250)], free_blocks=25, decoding=1))[0] == [(0, 99)]


def test_the_queue_stops_at_the_first_that_does_not_fit() -> None:
    """First come, first served: a short one behind a long one does not overtake it."""
    view = View(queue=[_sequence(0, 20), _sequence(1, 90), _sequence(2, 10)], free_blocks=8, decoding=1)
    assert _choices(view) == ([(0, 20)], Stop(Reason.WAITING_FOR_BLOCKS, needed=9, available=6))


def test_the_watermark_is_kept_while_others_run_and_not_for_the_only_one() -> None:
    """Room for growth, which an empty batch does not need: the largest request that fits at all is let in alone."""
    assert _choices(View(queue=[_sequence(0, 30)], free_blocks=3, watermark_blocks=1))[0] == [(0, 30)]
    view = View(queue=[_sequence(0, 30)], free_blocks=3, watermark_blocks=1, decoding=1)
    assert _choices(view) == ([], Stop(Reason.WAITING_FOR_BLOCKS, needed=3, available=2))


def test_nobody_is_admitted_in_a_step_that_preempted() -> None:
    """Blocks that were just taken from one are not given to another."""
    view = View(queue=[_sequence(0, 10)], preempted_in_this_step=True)
    assert _choices(view) == ([], Stop(Reason.WAITING_FOR_BLOCKS))


def test_slots_are_limited() -> None:
    """Decoding or in its prompt, a sequence has a slot."""
    view = View(decoding=2, begun=[_begun(0, 20, 10)], queue=[_sequence(1, 5), _sequence(2, 5)])
    assert _choices(view, max_num_seqs=4) == ([(0, 10), (1, 5)], Stop(Reason.WAITING_FOR_SLOT, needed=1))


def test_without_chunking_a_prompt_waits_for_a_step_that_takes_it_whole() -> None:
    """Neither one begun nor one from the queue is split."""
    settings = {"enable_chunked_prefill": False, "max_model_len": 100}
    view = View(decoding=3, queue=[_sequence(0, 50), _sequence(1, 48)])
    assert _choices(view, **settings) == ([(0, 50)], Stop(Reason.WAITING_FOR_BUDGET, needed=48, available=47))
    view = View(decoding=3, begun=[_begun(0, 98, 0)], queue=[_sequence(1, 10)])
    assert _choices(view, **settings) == ([], Stop(Reason.WAITING_FOR_BUDGET, needed=98, available=97))
    assert _choices(View(begun=[_begun(0, 100, 0)]), **settings) == ([(0, 100)], None)


@pytest.mark.parametrize(
    ("decoding", "since", "held"),
    [(4, 1, True), (4, 2, True), (4, 3, False), (5, 1, True), (3, 1, False), (0, 1, False)],
)
def test_prefill_interval_keeps_steps_for_many_decodes(*, decoding: int, since: int, held: bool) -> None:
    """While at least half of max_num_seqs decode, one step in three carries prompt tokens."""
    view = View(decoding=decoding, queue=[_sequence(0, 10)], steps_since_prefill=since)
    grants, stop = _choices(view, prefill_interval=3)
    assert (grants == []) == held
    assert stop == (Stop(Reason.WAITING_FOR_INTERVAL) if held else None)


def test_the_interval_never_applies_while_nobody_decodes() -> None:
    """Even with a load of zero: a step must not be empty."""
    view = View(queue=[_sequence(0, 10)], steps_since_prefill=1)
    assert _choices(view, prefill_interval=3, prefill_interval_load=0.0)[0] == [(0, 10)]


def test_target_itl_caps_prompt_tokens_and_admissions() -> None:
    """As many prompt tokens as the predicted step time allows; with none left the reason is latency."""
    view = View(decoding=2, within=25, queue=[_sequence(0, 20), _sequence(1, 20), _sequence(2, 20)])
    assert _choices(view, target_itl=1000) == ([(0, 20), (1, 5)], Stop(Reason.WAITING_FOR_LATENCY))


def test_decodes_that_alone_exceed_the_target_are_said_to() -> None:
    """Nothing is granted, and the queue's head is told why."""
    view = View(decoding=2, within=0, queue=[_sequence(0, 20)])
    assert _choices(view, target_itl=1000) == ([], Stop(Reason.WAITING_FOR_LATENCY))


def test_the_target_never_holds_up_a_step_without_decodes() -> None:
    """There is no time between tokens to protect, and progress is guaranteed."""
    view = View(decoding=0, within=0, begun=[_begun(0, 20, 5)])
    assert _choices(view, target_itl=1000) == ([(0, 15)], None)


def test_an_unknown_step_time_caps_nothing() -> None:
    """Until enough steps were seen the budget alone counts."""
    view = View(decoding=2, within=None, queue=[_sequence(0, 98)])
    assert _choices(view, target_itl=1000) == ([(0, 98)], None)


def test_a_cap_above_the_budget_changes_nothing() -> None:
    """The reason for waiting is then the budget."""
    view = View(decoding=2, within=5000, queue=[_sequence(0, 98), _sequence(1, 1)])
    assert _choices(view, target_itl=1000) == ([(0, 98)], Stop(Reason.WAITING_FOR_BUDGET))
