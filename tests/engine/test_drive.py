import pytest

from chairlift.core.blocks import BlockPool
from chairlift.core.errors import EngineUnhealthy
from chairlift.core.plan import StepOutcome, StepPlan
from chairlift.engine.drive import TimedRequest, drive
from chairlift.engine.params import SamplingParams
from chairlift.runners.fake import FakeRunner
from tests.engine.tiny import Clock, make_core

SECOND = 1_000_000_000


class TimedRunner(FakeRunner):
    """Its steps take their time on the clock of the test."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(vocabulary=128)
        self._clock = clock

    def execute(self, plan: StepPlan) -> StepOutcome:
        outcome = super().execute(plan)
        self._clock.time += outcome.device_time
        return outcome


def requests(*dues: float, answer: int = 4) -> list[TimedRequest]:
    """One request for each due time, in seconds."""
    params = SamplingParams(max_tokens=answer, temperature=0, ignore_eos=True)
    return [TimedRequest(f"r{i}", int(due * SECOND), [65 + i, 66], params) for i, due in enumerate(dues)]


def test_each_request_counts_from_the_moment_it_was_due_even_while_a_step_runs() -> None:
    """Arrivals are the schedule's, not the moments at which the loop got round to submitting."""
    clock = Clock()

    def sleep(nanoseconds: int) -> None:
        clock.time += nanoseconds

    driven = drive(make_core(TimedRunner(clock), clock=clock), requests(0, 0.001, 5), sleep)

    arrivals = {record.request_id: record.arrival - driven.started for record in driven.requests}
    assert arrivals == {"r0": 0, "r1": SECOND // 1000, "r2": 5 * SECOND}
    assert sum(driven.ledger.times.values()) == driven.ledger.wall


def test_while_nothing_is_due_it_sleeps_until_the_next_arrival_exactly() -> None:
    """One sleep bridges the gap between two requests."""
    clock, naps = Clock(), []

    def sleep(nanoseconds: int) -> None:
        naps.append(nanoseconds)
        clock.time += nanoseconds

    driven = drive(make_core(TimedRunner(clock), clock=clock), requests(0, 10), sleep)

    first = next(record for record in driven.requests if record.request_id == "r0")
    assert naps == [10 * SECOND - (first.released - driven.started)]


def test_a_held_batch_leaves_at_its_delay_and_an_unfilled_one_at_the_end_of_the_input() -> None:
    """Dynamic sleeps out the delay of a lone request; static's last batch leaves when nobody else will come."""
    for policy, starts in (("dynamic", 0.05 * SECOND), ("static", 2 * SECOND)):
        clock = Clock()

        def sleep(nanoseconds: int, clock: Clock = clock) -> None:
            clock.time += nanoseconds

        core = make_core(TimedRunner(clock), clock=clock, policy=policy)
        driven = drive(core, requests(0, 2), sleep)

        first = next(record for record in driven.requests if record.request_id == "r0")
        assert first.admitted is not None
        assert first.admitted - driven.started == starts


def test_an_empty_schedule_ends_at_once() -> None:
    """No requests, no steps, no records."""
    driven = drive(make_core(clock=Clock()), [], lambda _: None)

    assert driven.requests == ()
    assert driven.wall == 0


class Refusing(BlockPool):
    def allocate(self, table: object, count: int) -> bool:
        return False


def test_work_that_can_never_be_scheduled_is_an_error_and_not_an_endless_loop() -> None:
    """An allocator that refuses for ever ends the drive with the cause."""
    core = make_core(clock=Clock(), pool=Refusing(64, 16))

    with pytest.raises(EngineUnhealthy, match="cannot be admitted"):
        drive(core, requests(0), lambda _: None)
