import asyncio

from chairlift.lab.client import clock as module
from chairlift.lab.client.clock import MILLISECOND, RunClock, sleep_until
from tests.lab.client.harness import ManualClock, settle, until


async def test_a_run_begins_at_zero() -> None:
    """start() is the zero of all times."""
    clock = RunClock()
    before = clock.now()
    clock.start()

    assert before >= 0
    assert clock.now() >= 0


async def test_a_call_is_never_made_before_its_time() -> None:
    """Event loops may wake up early; the clock then waits again."""
    clock, times = RunClock(), list[int]()
    due = [clock.now() + number * MILLISECOND // 3 for number in range(6)]
    for when in due:
        clock.call_at(when, lambda: times.append(clock.now()))

    await until(lambda: len(times) == 6)

    assert all(time >= when for time, when in zip(times, due, strict=True))


async def test_a_loop_that_wakes_up_early_is_sent_back() -> None:
    """The alarm looks at the clock, not at the loop's word."""
    clock, rung = RunClock(), list[int]()
    alarm = module._LoopAlarm(clock, clock.now() + 3_600 * 10**9, lambda: rung.append(1))
    alarm._fire()
    await settle()

    assert not rung
    alarm.cancel()


async def test_a_time_that_has_passed_is_rung_at_once_and_not_from_inside() -> None:
    """The caller goes on first."""
    clock, rung = RunClock(), list[int]()
    clock.call_at(-1, lambda: rung.append(1))
    assert not rung

    await until(lambda: rung)


async def test_a_cancelled_call_is_not_made() -> None:
    """Nor is its handle left behind."""
    clock, rung = RunClock(), list[int]()
    clock.call_at(-1, lambda: rung.append(1)).cancel()
    await settle()

    assert not rung


async def test_sleeping_ends_at_its_time() -> None:
    """And not before."""
    clock = ManualClock()
    sleeper = asyncio.create_task(sleep_until(clock, 100))
    await clock.advance_to(99)
    assert not sleeper.done()
    await clock.advance_to(100)
    await settle()

    assert sleeper.done()


async def test_sleeping_until_the_past_does_not_wait() -> None:
    """There is nothing to wait for."""
    clock = ManualClock()
    clock.time = 5

    await sleep_until(clock, 5)


async def test_a_sleeper_that_is_cancelled_leaves_no_call_behind() -> None:
    """The alarm goes with it."""
    clock = ManualClock()
    sleeper = asyncio.create_task(sleep_until(clock, 100))
    await settle()
    sleeper.cancel()
    await settle()
    await clock.advance_to(200)

    assert sleeper.cancelled()
