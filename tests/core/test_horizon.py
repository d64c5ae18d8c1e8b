"""A jump over horizon(plan) steps against single steps on a twin."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings

from chairlift.core.errors import ContractError
from chairlift.core.journal import Entry, fingerprint, replay
from chairlift.core.plan import Finished, StepEvents, StepOutcome, StepPlan, Wait
from chairlift.core.request import FinishReason
from chairlift.core.scheduler import Scheduler
from chairlift.runners.fake import FakeRunner
from tests.core.helpers import MILLISECOND, any_outcome, make_scheduler, request, submit
from tests.core.strategies import SEEDS, VOCABULARY, Setup, random_request, random_setup, random_switch


class Twins:
    """Two schedulers with the same load: one jumps, one steps, and the device is asked by the one that steps."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.journal: list[Entry] = []
        self.jumper = Scheduler(setup.config, setup.capacity, journal=self.journal)
        self.stepper = Scheduler(setup.config, setup.capacity)
        capacity = setup.capacity
        self.runner = FakeRunner(num_blocks=capacity.num_blocks, block_size=capacity.block_size, vocabulary=VOCABULARY)
        self.now = 0
        self.longest = 0
        self.named = 0

    @property
    def both(self) -> tuple[Scheduler, Scheduler]:
        return self.jumper, self.stepper

    def advance(self, draw: Random) -> bool:
        """One jump, and as many steps. Returns whether there was anything to do."""
        plan, step = self.jumper.plan(self.now), self.stepper.plan(self.now)
        assert fingerprint(plan) == fingerprint(step)
        if isinstance(plan, Wait) or isinstance(step, Wait):
            return False
        assert plan.decisions == step.decisions
        horizon = self.jumper.horizon(plan)
        assert horizon == self.stepper.horizon(step)
        if draw.random() < 0.05:
            assert self.jumper.abort(plan, self.now) == self.stepper.abort(step, self.now)
            return True
        times = draw.choice((horizon, draw.randint(1, horizon)))
        self.longest = max(self.longest, times)
        self._jump(plan, step, times, draw)
        return True

    def _jump(self, plan: StepPlan, step: StepPlan, times: int, draw: Random) -> None:
        tokens: list[int] = []
        times_taken: list[int] = []
        events: list[StepEvents] = []
        stops = {}
        for number in range(times):
            if number:
                again = self.stepper.plan(self.now)
                assert isinstance(again, StepPlan)
                assert (again.request_ids, again.kinds) == (plan.request_ids, plan.kinds)
                assert again.decisions == ()
                step = again
            outcome = self.runner.execute(step)
            tokens += outcome.tokens
            times_taken.append(outcome.device_time)
            if number == times - 1:
                self._meanwhile(draw)
                if draw.random() < 0.1:
                    stops = {draw.randrange(len(plan)): FinishReason.STOP}
                    outcome = replace(outcome, stops=stops)
            self.now += outcome.device_time
            events.append(self.stepper.commit(step, outcome, self.now))
        whole = StepOutcome(tokens, sum(times_taken), stops=stops, times=lambda repeat: times_taken[repeat])
        jumped = self.jumper.commit(plan, whole, self.now, times)
        assert _by_request(jumped) == _by_request(*events)
        assert jumped.finished == tuple(one for part in events for one in part.finished)
        assert jumped.preempted == tuple(name for part in events for name in part.preempted)
        assert jumped.decisions == tuple(decision for part in events for decision in part.decisions)

    def _meanwhile(self, draw: Random) -> None:
        """Something comes while the last step is in flight."""
        if draw.random() < 0.1:
            self.named += 1
            one = random_request(f"late{self.named}", self.setup, self.now, draw.randrange(1 << 32))
            assert self.jumper.submit(one, self.now) == self.stepper.submit(one, self.now)
        if draw.random() < 0.05 and (names := sorted(self.jumper._state.sequences)):
            name = draw.choice(names)
            assert self.jumper.cancel(name, self.now) == self.stepper.cancel(name, self.now)

    def check(self) -> None:
        """Nothing tells the one from the other."""
        jumper, stepper = self.both
        jumper.check_integrity()
        assert jumper.usage() == stepper.usage()
        assert jumper.counters == stepper.counters
        assert [one.table for one in jumper._batcher.holders()] == [one.table for one in stepper._batcher.holders()]
        assert jumper.ledger.report(self.now) == stepper.ledger.report(self.now)
        assert (jumper.predictor.steps, jumper.predictor.cost()) == (stepper.predictor.steps, stepper.predictor.cost())


def _by_request(*events: StepEvents) -> list[tuple[str, int]]:
    return [pair for part in events for pair in zip(part.request_ids, part.tokens, strict=True)]


def _random_life(setup: Setup, seed: int) -> Twins:
    """Arrivals, cancellations and switches, with jumps between them, until everything has ended."""
    twins, draw = Twins(setup), Random(seed)
    for number in range(draw.randint(1, 12)):
        one = random_request(f"r{number}", setup, twins.now, draw.randrange(1 << 32))
        assert twins.jumper.submit(one, twins.now) == twins.stepper.submit(one, twins.now)
        for _ in range(draw.choice((0, 0, 1, 4))):
            twins.advance(draw)
            twins.check()
        if draw.random() < 0.2:
            name = f"r{draw.randint(0, number)}"
            assert twins.jumper.cancel(name, twins.now) == twins.stepper.cancel(name, twins.now)
        if draw.random() < 0.1:
            policy = random_switch(setup, draw.randrange(1 << 32))[0]
            for scheduler in twins.both:
                changes = {"kv_reservation": None, "padding": None, "release": None}
                if policy == "continuous" or scheduler.config.max_num_batched_tokens >= 6:
                    scheduler.switch_policy(policy, twins.now, enable_chunked_prefill=True, **changes)
        twins.check()
    for scheduler in twins.both:
        scheduler.end_input(twins.now)
    for _ in range(2000):
        if not twins.jumper.has_work:
            return twins
        assert twins.advance(draw)
        twins.check()
    raise AssertionError("not done")


@settings(max_examples=max(150, settings().max_examples))
@given(seed=SEEDS, of_setup=SEEDS)
def test_a_jump_leads_where_single_steps_lead(seed: int, of_setup: int) -> None:
    """Committing a plan horizon(plan) times or fewer gives the state of so many single steps: tokens, blocks,
    decisions, counters, ledger, predictions; and the journal of the jumps replays.
    """
    setup = random_setup(of_setup)
    twins = _random_life(setup, seed)
    replayed = Scheduler(setup.config, setup.capacity)
    for _ in replay(twins.journal, replayed):
        pass
    assert replayed.counters == twins.jumper.counters


def test_the_random_lives_do_jump() -> None:
    """The property above is not met by horizons of one."""
    longest = [_random_life(random_setup(seed), seed).longest for seed in range(30)]
    assert sum(times > 3 for times in longest) > 15


def _decoding(scheduler: Scheduler) -> StepPlan:
    """The first plan that only decodes."""
    while True:
        plan = scheduler.plan(0)
        assert isinstance(plan, StepPlan)
        if plan.single_token_rows == len(plan):
            return plan
        scheduler.commit(plan, any_outcome(plan, device_time=0), 0)


def test_the_horizon_ends_where_the_first_one_ends() -> None:
    """A jump may end the shortest answer in its last step, not before."""
    scheduler = make_scheduler(max_model_len=64)
    submit(scheduler, request("short", max_tokens=5), request("long", max_tokens=9))

    assert scheduler.horizon(_decoding(scheduler)) == 4


def test_the_horizon_ends_before_blocks_run_out() -> None:
    """Growth within the free blocks may be jumped over; the step that has to preempt is planned."""
    scheduler = make_scheduler(max_model_len=64, block_size=4, num_blocks=5, watermark=0)
    submit(scheduler, request("a", prompt=6, max_tokens=10), request("b", prompt=6, max_tokens=10))

    # Two blocks each, two positions left in the second; the fifth block lets one of them go on.
    plan = _decoding(scheduler)
    assert scheduler.horizon(plan) == 2


def test_nothing_is_jumped_over_that_may_change_in_a_step() -> None:
    """Stop ids, prompts, a queue that may move, a cancellation or a switch in flight: one step at a time."""
    with_stop = make_scheduler()
    submit(with_stop, request(stop_ids=frozenset({1}), max_tokens=9))
    assert with_stop.horizon(_decoding(with_stop)) == 1

    held = make_scheduler(prefill_interval=3, prefill_interval_load=0.0)
    submit(held, request("a", max_tokens=9))
    plan = held.plan(0)
    assert isinstance(plan, StepPlan)
    assert held.horizon(plan) == 1, "a prompt"
    held.commit(plan, any_outcome(plan), MILLISECOND)
    submit(held, request("b", max_tokens=9), now=MILLISECOND)
    plan = held.plan(MILLISECOND)
    assert isinstance(plan, StepPlan)
    assert held.horizon(plan) == 1, "a queue that waits for its interval"

    leaving = make_scheduler()
    submit(leaving, request("a", max_tokens=9), request("b", max_tokens=9))
    plan = _decoding(leaving)
    assert leaving.horizon(plan) == 8
    leaving.cancel("b", 0)
    assert leaving.horizon(plan) == 1, "a cancellation that acts at the commit"


def test_a_queue_that_waits_for_somebodys_end_may_be_jumped_over() -> None:
    """Nothing changes for who waits for a slot until somebody ends."""
    scheduler = make_scheduler(max_num_seqs=1)
    submit(scheduler, request("a", max_tokens=9), request("b", max_tokens=9))

    assert scheduler.horizon(_decoding(scheduler)) == 8


def test_a_jump_beyond_the_horizon_or_with_trouble_in_it_is_refused() -> None:
    """More steps than the horizon, none at all, and failures in several steps break the contract."""
    scheduler = make_scheduler()
    submit(scheduler, request(max_tokens=5))
    plan = _decoding(scheduler)

    with pytest.raises(ContractError, match="may be made 4 times at most, not 5"):
        scheduler.commit(plan, StepOutcome([7] * 5, 0), 0, times=5)
    with pytest.raises(ContractError, match="not 0"):
        scheduler.commit(plan, StepOutcome([], 0), 0, times=0)
    with pytest.raises(ContractError, match="cannot carry failures"):
        scheduler.commit(plan, StepOutcome([7, 7], 0, failures={0: "x"}), 0, times=2)
    with pytest.raises(ContractError, match="samples 8 tokens; the outcome has 4"):
        scheduler.commit(plan, StepOutcome([7] * 4, 0), 0, times=8)
    scheduler.commit(plan, StepOutcome([7] * 4, 0), 0, times=4)
    assert not scheduler.has_work


def test_a_jump_of_a_closed_batch_releases_in_the_order_of_single_steps() -> None:
    """Streamed from a closed batch: step after step, row after row."""
    scheduler = make_scheduler(policy="static", batch_size=2, release="token")
    submit(scheduler, request("a", max_tokens=4), request("b", max_tokens=4))
    plan = _decoding(scheduler)

    events = scheduler.commit(plan, StepOutcome([1, 2, 3, 4, 5, 6], 0), 0, times=3)

    assert list(zip(events.request_ids, events.tokens, strict=True)) == [
        ("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5), ("b", 6),
    ]  # fmt: skip
    assert events.finished == (
        Finished("a", FinishReason.LENGTH, 4),
        Finished("b", FinishReason.LENGTH, 4),
    )
