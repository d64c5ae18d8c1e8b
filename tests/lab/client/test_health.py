import resource
from pathlib import Path

from chairlift.lab.client.clock import MILLISECOND, SECOND
from chairlift.lab.client.health import HealthMonitor, Tally, Usage, allow_many_files, read_stalled, read_usage
from chairlift.records.client import HealthSample
from tests.lab.client.harness import ManualClock

BEAT = 100 * MILLISECOND


class Case:
    """A monitor with beats of 100 ms, on a machine whose usage is what the test says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.tally = Tally()
        self.usage = Usage(0, 0, 0)
        self.samples: list[HealthSample] = []
        self.monitor = HealthMonitor(self.clock, self.tally, self.samples.append, beat=BEAT, usage=lambda: self.usage)


async def test_a_loop_that_is_on_time_has_no_lag() -> None:
    """Ten beats a second, all punctual."""
    case = Case()
    case.monitor.start()
    await case.clock.advance_to(SECOND)

    [sample] = case.samples
    assert (sample.time, sample.interval, sample.loop_lags) == (SECOND, SECOND, (0,) * 10)


async def test_a_stall_counts_for_every_beat_it_swallowed() -> None:
    """A loop that stood still for 350 ms missed three beats, each by its own time."""
    case = Case()
    case.monitor.start()
    await case.clock.jump_to(350 * MILLISECOND)
    await case.clock.advance_to(SECOND)

    lags = case.samples[0].loop_lags
    assert lags[:3] == (250 * MILLISECOND, 150 * MILLISECOND, 50 * MILLISECOND)
    assert set(lags[3:]) == {0}


async def test_a_sample_has_the_shares_of_its_own_interval() -> None:
    """Processor time and pressure are differences."""
    case = Case()
    case.usage = Usage(5 * SECOND, 9 * SECOND, 3 * SECOND)
    case.monitor.start()
    await case.clock.advance_to(SECOND - 1)
    case.usage = Usage(5 * SECOND + SECOND // 2, 10 * SECOND, 3 * SECOND + SECOND // 4)
    await case.clock.advance_to(2 * SECOND)

    first, second = case.samples
    assert (first.thread_cpu, first.process_cpu, first.pressure) == (0.5, 1.0, 0.25)
    assert (second.thread_cpu, second.process_cpu, second.pressure) == (0.0, 0.0, 0.0)


async def test_a_machine_without_pressure_says_none() -> None:
    """Not 0, which would be a measurement."""
    case = Case()
    case.usage = Usage(0, 0, None)
    case.monitor.start()
    await case.clock.advance_to(SECOND)

    assert case.samples[0].pressure is None


async def test_counts_are_those_of_the_interval_and_flights_those_of_its_end() -> None:
    """Sent, lag and chunks begin anew; in flight goes on."""
    case = Case()
    case.monitor.start()
    case.tally.began(7)
    case.tally.began(3)
    case.tally.chunks = 5
    await case.clock.advance_to(SECOND)
    case.tally.in_flight -= 1
    await case.clock.advance_to(2 * SECOND)

    assert [(one.sent, one.send_lag_max, one.chunks, one.in_flight) for one in case.samples] == [
        (2, 7, 5, 2),
        (0, 0, 0, 1),
    ]


async def test_stopping_hands_out_the_rest_once() -> None:
    """The last interval is shorter, and nothing beats after it."""
    case = Case()
    case.monitor.start()
    await case.clock.advance_to(1300 * MILLISECOND)
    case.monitor.stop()
    case.monitor.stop()
    await case.clock.advance_to(5 * SECOND)

    assert [sample.interval for sample in case.samples] == [SECOND, 300 * MILLISECOND]


def test_the_kernels_pressure_is_read_in_nanoseconds(tmp_path: Path) -> None:
    """`some total=` counts microseconds."""
    page = tmp_path / "cpu"
    page.write_text(
        "some avg10=1.00 avg60=0.50 avg300=0.10 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"
    )

    assert read_stalled(page) == 1_234_000


def test_a_page_that_is_not_there_or_not_understood_is_none(tmp_path: Path) -> None:
    """Other systems, older kernels."""
    page = tmp_path / "cpu"
    assert read_stalled(page) is None
    page.write_text("nonsense")
    assert read_stalled(page) is None


def test_usage_is_read_from_this_thread() -> None:
    """It grows with work."""
    before = read_usage()
    sum(range(100_000))
    after = read_usage()

    assert after.thread > before.thread
    assert after.process > before.process


def test_the_limit_on_open_files_is_raised_to_what_is_allowed() -> None:
    """And the limit is returned."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert allow_many_files() == resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
