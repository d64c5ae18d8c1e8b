import pytest

from chairlift.core.errors import ConfigError
from chairlift.lab.client.clock import SECOND
from chairlift.lab.client.options import TimeLimits
from chairlift.lab.client.stopwatch import Stopwatch
from chairlift.lab.client.watchdog import Watchdog
from tests.lab.client.harness import ManualClock


class Case:
    """A request that was sent at 1 s, and the moments at which its time was over."""

    def __init__(self, limits: TimeLimits) -> None:
        self.clock = ManualClock()
        self.watch = Stopwatch(0, 0)
        self.clock.time = self.watch.sent = SECOND
        self.expired: list[int] = []
        self.dog = Watchdog(self.clock, limits, self.watch, lambda: self.expired.append(self.clock.time))

    def active(self) -> None:
        self.watch.last_activity = self.clock.time


async def test_a_connection_has_its_time_from_the_moment_of_sending() -> None:
    """Not from the schedule's: lateness is the client's."""
    case = Case(TimeLimits(connect=3 * SECOND))
    await case.clock.advance_to(10 * SECOND)

    assert case.expired == [4 * SECOND]
    assert case.dog.verdict == "not connected within 3 s"


async def test_a_written_request_is_no_more_bound_by_the_connecting_time() -> None:
    """The limit is for connecting alone."""
    case = Case(TimeLimits(connect=3 * SECOND, idle=None))
    case.watch.written = 2 * SECOND
    await case.clock.advance_to(100 * SECOND)

    assert not case.expired


async def test_silence_is_counted_from_the_last_byte() -> None:
    """Every byte begins it anew."""
    case = Case(TimeLimits(idle=5 * SECOND))
    case.watch.written = SECOND
    for second in range(2, 20):
        await case.clock.advance_to(second * SECOND)
        case.active()
    assert not case.expired

    await case.clock.advance_to(60 * SECOND)
    assert case.expired == [24 * SECOND]
    assert case.dog.verdict == "nothing came for 5 s"


async def test_the_whole_time_ends_even_a_lively_answer() -> None:
    """However many bytes come."""
    case = Case(TimeLimits(idle=5 * SECOND, total=8 * SECOND))
    case.watch.written = SECOND
    for second in range(2, 12):
        await case.clock.advance_to(second * SECOND)
        case.active()

    assert case.expired == [9 * SECOND]
    assert case.dog.verdict == "no end within 8 s"


async def test_without_limits_nothing_ever_ends() -> None:
    """None is for ever."""
    case = Case(TimeLimits(connect=None, idle=None, total=None))
    await case.clock.advance_to(10**6 * SECOND)

    assert not case.expired


async def test_a_request_that_has_ended_is_let_go() -> None:
    """The watchdog is stopped with it."""
    case = Case(TimeLimits())
    case.dog.stop()
    await case.clock.advance_to(10**4 * SECOND)

    assert not case.expired


@pytest.mark.parametrize("name", ["connect", "idle", "total"])
def test_a_limit_that_is_not_positive_is_refused(name: str) -> None:
    """With the flag's name."""
    with pytest.raises(ConfigError, match=f"--{name}-timeout is 0 ns"):
        TimeLimits(**{name: 0})
