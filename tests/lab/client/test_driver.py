import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from chairlift.core.errors import ConfigError
from chairlift.lab.client.clock import MILLISECOND, SECOND
from chairlift.lab.client.deltas import Delta
from chairlift.lab.client.devices import Devices
from chairlift.lab.client.driver import Driver
from chairlift.lab.client.options import Answer, RunOptions, Stop, TimeLimits
from chairlift.lab.client.stopwatch import Stopwatch
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.request import ScheduledRequest
from chairlift.lab.loads.schedule import Schedule
from chairlift.records.client import DeviceSample, ErrorClass, HealthSample, Observation, RequestTrace, ServerSample
from tests.lab.client.harness import ManualClock, settle, until

WORD = Delta(choices=True, content=True, text="a", token_ids=(7,))


def schedule(pairs: str) -> Schedule:
    """Of key=value pairs in one text."""
    return Schedule(load_from_pairs(f"prompt=8 output=2 {pairs}".split()))


class FakeSender:
    """Takes requests; each ends when the test says so, or after `takes`."""

    def __init__(self, clock: ManualClock, takes: int | None = None) -> None:
        self.clock = clock
        self.takes = takes
        self.prepared: list[tuple[int, dict[int, Answer]]] = []
        self.sent: list[tuple[int, int]] = []
        """Index and time of each request."""
        self.gates: dict[int, asyncio.Future[None]] = {}
        self.failing: Mapping[int, Exception] = {}
        self.unpreparable: set[int] = set()
        self.samples: list[bool] = []
        self.told: list[int] = []

    def prepare(self, request: ScheduledRequest, answers: Mapping[int, Answer]) -> int:
        if request.index in self.unpreparable:
            raise ConfigError(f"no prompt for {request.index}")
        self.prepared.append((request.index, dict(answers)))
        return request.index

    async def send(self, request: ScheduledRequest, prepared: int, watch: Stopwatch) -> None:
        assert prepared == request.index
        self.sent.append((request.index, self.clock.now()))
        watch.written = watch.last_activity = self.clock.now()
        if request.index in self.failing:
            raise self.failing[request.index]
        gate = self.gates[request.index] = asyncio.get_running_loop().create_future()
        if self.takes is not None:
            self.clock.call_at(self.clock.now() + self.takes, lambda: self.answer(request.index))
        await gate
        watch.event(WORD, self.clock.now())

    def answer(self, index: int) -> None:
        """Let a request end well."""
        if not self.gates[index].done():
            self.gates[index].set_result(None)

    async def sample(self, *, complete: bool) -> ServerSample | None:
        self.samples.append(complete)
        return ServerSample(0, 0, running=float(len(self.sent)))

    def exhausted(self) -> None:
        self.told.append(self.clock.now())


class Run:
    """A driver, its observations as they come, and the clock it runs on."""

    def __init__(
        self,
        pairs: str,
        takes: int | None = None,
        options: RunOptions | None = None,
        devices: Devices | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.sender = FakeSender(self.clock, takes)
        self.stop = Stop()
        self.seen: list[Observation] = []
        driver = Driver(self.sender, schedule(pairs), self.clock, options or RunOptions(), self.stop, devices)
        self.observations = driver.run()
        self.task = asyncio.create_task(self._collect())

    async def _collect(self) -> None:
        async for observation in self.observations:
            self.seen.append(observation)

    async def until(self, second: float) -> None:
        await self.clock.advance_to(round(second * SECOND))

    async def finish(self) -> None:
        """It ends by itself."""
        await until(self.task.done)
        self.task.result()

    @property
    def traces(self) -> list[RequestTrace]:
        return [one for one in self.seen if isinstance(one, RequestTrace)]

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.seen if isinstance(one, kind)]


async def test_an_open_loop_sends_when_it_is_due_and_waits_for_nothing() -> None:
    """Ten a second, though nobody answers."""
    run = Run("arrivals=constant arrivals.rate=10 count=5")
    await run.until(10)

    assert run.sender.sent == [(index, index * SECOND // 10) for index in range(5)]
    assert not run.task.done()
    for index in range(5):
        run.sender.answer(index)
    await run.finish()
    assert [trace.ok for trace in run.traces] == [True] * 5


class OneDevice:
    """A device that tells its name."""

    def read(self) -> list[DeviceSample]:
        return [DeviceSample(0, "one", "gpu", 0.5)]


async def test_devices_are_read_when_the_server_is() -> None:
    """Before the clock starts, each second, and at the end; the client's clock says when."""
    run = Run("arrivals=constant arrivals.rate=10 count=1", devices=OneDevice())
    await until(lambda: bool(run.sender.sent))
    await run.until(1)
    await until(lambda: len(run.of(DeviceSample)) == 2)
    run.sender.answer(0)
    await run.finish()

    assert [sample.time for sample in run.of(DeviceSample)] == [0, SECOND, SECOND]


async def test_a_trace_has_its_requests_deadline() -> None:
    """Whether it ended, or was cut before its end."""
    run = Run("arrivals=constant arrivals.rate=10 count=2 deadline=2s")
    await run.until(1)
    run.sender.answer(0)
    await settle()
    run.stop.request()
    await run.finish()

    assert [(trace.ok, trace.deadline) for trace in run.traces] == [(True, 2 * SECOND), (False, 2 * SECOND)]


async def test_the_clock_starts_when_everything_is_ready() -> None:
    """Requests are prepared and the server is sampled before time zero."""
    run = Run("arrivals=constant arrivals.rate=10 count=3", takes=1)
    await settle()

    assert run.clock.started == 1
    assert [index for index, _ in run.sender.prepared] == [0, 1, 2]
    assert run.sender.samples == [True]
    await run.until(1)
    await run.finish()


async def test_a_client_that_comes_late_is_late_in_the_record() -> None:
    """The loop stood still for half a second: what was due is sent at once, and counted from when it was due."""
    run = Run("arrivals=constant arrivals.rate=10 count=5", takes=1)
    await settle()
    await run.clock.jump_to(SECOND // 2)
    await run.until(1)
    await run.finish()

    late = [trace.send_lag for trace in run.traces if trace.index]
    assert late == [SECOND // 2 - index * SECOND // 10 for index in range(1, 5)]
    assert [trace.scheduled for trace in run.traces] == [index * SECOND // 10 for index in range(5)]
    assert max(sample.send_lag_max for sample in run.of(HealthSample)) == SECOND * 4 // 10


async def test_a_closed_loop_takes_the_next_when_an_answer_is_there() -> None:
    """Two users who think for a second; the third request is due when the first user has thought."""
    run = Run("arrivals=closed arrivals.users=2 arrivals.think=1s count=4")
    await run.until(3)
    assert run.sender.sent == [(0, 0), (1, 0)]
    run.sender.answer(1)
    await run.until(3.9)
    assert len(run.sender.sent) == 2
    await run.until(4)
    assert run.sender.sent[2:] == [(2, 4 * SECOND)]
    run.sender.answer(0)
    run.sender.answer(2)
    await run.until(6)
    run.sender.answer(3)
    await run.finish()

    assert [trace.scheduled for trace in run.traces] == [0, 0, 4 * SECOND, 5 * SECOND]
    assert {trace.send_lag for trace in run.traces} == {0}


async def test_a_turn_follows_the_answer_and_is_written_with_it() -> None:
    """A session's second prompt has the first one's real answer in it, half a second after its end."""
    run = Run("arrivals=burst arrivals.size=1 sessions.turns=2 sessions.think=500ms count=2")
    await run.until(1)
    run.sender.answer(0)
    await run.until(2)
    run.sender.answer(1)
    await run.finish()

    assert run.sender.sent == [(0, 0), (1, SECOND * 3 // 2)]
    assert run.sender.prepared == [(0, {}), (1, {0: Answer("a", (7,))})]
    assert run.traces[0].text is None


async def test_a_failed_turn_ends_its_session_and_nothing_else() -> None:
    """The run goes on with the others."""
    run = Run("arrivals=constant arrivals.rate=1 sessions.turns=2 count=4", takes=1)
    run.sender.failing = {0: RuntimeError("boom")}
    await run.until(3)
    await run.finish()

    assert [(trace.index, trace.ok) for trace in run.traces] == [(0, False), (2, True), (3, True)]


async def test_the_clients_own_bugs_are_recorded_as_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """With the traceback in the log, and the run goes on."""
    run = Run("arrivals=constant arrivals.rate=1 count=3", takes=1)
    run.sender.failing = {1: RuntimeError("boom")}
    await run.until(3)
    await run.finish()

    assert [trace.error for trace in run.traces] == [None, ErrorClass.CLIENT, None]
    assert run.traces[1].error_message == "RuntimeError: boom"
    assert "RuntimeError: boom" in caplog.text


async def test_a_prompt_that_cannot_be_made_ends_the_run_before_it_begins() -> None:
    """Where it is among the first, which are made ahead."""
    run = Run("arrivals=constant arrivals.rate=1 count=3", takes=1)
    run.sender.unpreparable = {1}
    await until(run.task.done)

    with pytest.raises(ConfigError, match="no prompt for 1"):
        run.task.result()
    assert run.sender.sent == []


async def test_a_prompt_that_cannot_be_made_later_is_that_requests_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are sent."""
    monkeypatch.setattr("chairlift.lab.client.driver.READ_AHEAD", 1)
    run = Run("arrivals=constant arrivals.rate=1 count=4", takes=1)
    run.sender.unpreparable = {2}
    await run.until(5)
    await run.finish()

    assert [trace.error for trace in run.traces] == [None, None, ErrorClass.CLIENT, None]
    assert "no prompt for 2" in caplog.text


async def test_the_time_limit_cuts_and_says_so() -> None:
    """What is under way at 2 s is recorded with what it had; what would be due later never was."""
    run = Run("arrivals=constant arrivals.rate=1 count=10", options=RunOptions(time_limit=5 * SECOND // 2))
    await run.until(1)
    run.sender.answer(0)
    await run.until(3)
    await run.finish()

    assert [(trace.index, trace.error) for trace in run.traces] == [
        (0, None),
        (1, ErrorClass.CUT),
        (2, ErrorClass.CUT),
    ]
    assert run.traces[1].error_message == "the run's time limit was over"
    assert run.traces[1].end == 5 * SECOND // 2


async def test_what_was_due_and_not_begun_is_recorded_as_unsent() -> None:
    """A stop finds the client three requests behind."""
    run = Run("arrivals=constant arrivals.rate=10 count=10")
    await settle()
    run.clock.time = SECOND // 4
    run.stop.request()
    await run.finish()

    assert [(trace.index, trace.error, trace.sent) for trace in run.traces] == [
        (1, ErrorClass.UNSENT, None),
        (2, ErrorClass.UNSENT, None),
        (0, ErrorClass.CUT, 0),
    ]


async def test_a_stop_before_a_task_ran_leaves_it_unsent() -> None:
    """Begun in name only."""
    run = Run("arrivals=burst arrivals.size=3")
    await until(lambda: run.clock.started)
    run.stop.request()
    await run.finish()

    assert {trace.error for trace in run.traces} == {ErrorClass.UNSENT}
    assert len(run.traces) == 3


async def test_a_stop_asked_for_before_the_run_ends_it_at_once() -> None:
    """Nothing is sent."""
    run = Run("arrivals=constant arrivals.rate=10 count=10")
    run.stop.request()
    await run.finish()

    assert run.sender.sent == []


async def test_a_timeout_ends_one_request_and_says_which_limit() -> None:
    """The others are not concerned."""
    limits = TimeLimits(idle=2 * SECOND)
    run = Run("arrivals=constant arrivals.rate=1 count=2", options=RunOptions(limits=limits))
    await run.until(1.5)
    run.sender.answer(1)
    await run.until(3)
    await run.finish()

    assert [(trace.index, trace.error) for trace in run.traces] == [(1, None), (0, ErrorClass.TIMEOUT)]
    assert (run.traces[1].error_message, run.traces[1].end) == ("nothing came for 2 s", 2 * SECOND)


async def test_the_server_is_sampled_at_both_ends_and_each_second() -> None:
    """The first before time zero, the last when all has ended; both complete."""
    run = Run("arrivals=constant arrivals.rate=1 count=3", takes=1)
    await run.until(4)
    await run.finish()

    assert run.sender.samples == [True, False, False, True]
    assert [sample.time for sample in run.of(ServerSample)] == [0, SECOND, 2 * SECOND, 2 * SECOND + 1]


async def test_health_is_sampled_until_the_end() -> None:
    """The intervals cover the run, and sum up what was sent."""
    run = Run("arrivals=constant arrivals.rate=4 count=5", takes=SECOND // 2)
    await run.until(4)
    await run.finish()

    samples = run.of(HealthSample)
    assert [sample.interval for sample in samples] == [SECOND, SECOND // 2]
    assert [(sample.sent, sample.chunks, sample.in_flight) for sample in samples] == [(5, 3, 2), (0, 2, 0)]


async def test_the_target_is_told_after_the_last_request_was_sent() -> None:
    """Of a burst all are with the target by then: a batch that waits to fill does not leave without the last."""
    run = Run("arrivals=burst arrivals.size=5", takes=1)
    sent_before: list[int] = []
    run.sender.exhausted = lambda: sent_before.append(len(run.sender.sent))  # type: ignore[method-assign]
    await run.until(1)
    await run.finish()

    assert sent_before == [5]


async def test_the_target_is_told_when_nothing_further_comes() -> None:
    """Once, with the last request."""
    run = Run("arrivals=constant arrivals.rate=1 count=3", takes=1)
    await run.until(1.5)
    assert run.sender.told == []
    await run.until(4)
    await run.finish()

    assert run.sender.told == [2 * SECOND]


async def test_warm_up_is_marked() -> None:
    """The load says which."""
    run = Run("arrivals=constant arrivals.rate=1 count=3 warmup_requests=1", takes=1)
    await run.until(4)
    await run.finish()

    assert [trace.warmup for trace in run.traces] == [True, False, False]


async def test_breaking_off_hangs_up_on_everybody() -> None:
    """Whoever closes the generator leaves nothing running."""
    before = asyncio.all_tasks()
    run = Run("arrivals=burst arrivals.size=3")
    await run.until(1)
    run.task.cancel()
    await until(run.task.done)
    await run.observations.aclose()

    assert all(gate.cancelled() for gate in run.sender.gates.values())
    assert asyncio.all_tasks() == before


async def test_a_schedule_that_fails_under_way_ends_the_run_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was under way is recorded first."""
    run = Run("arrivals=constant arrivals.rate=1 count=5")
    await settle()

    def broken(_: object) -> None:
        raise ConfigError("the trace is damaged")

    monkeypatch.setattr("chairlift.lab.loads.playback.Playback._moment", broken)
    await run.until(1)
    await until(run.task.done)

    assert [trace.error for trace in run.traces] == [ErrorClass.CUT]
    with pytest.raises(ConfigError, match="damaged"):
        run.task.result()


async def test_bodies_are_made_ahead_in_quiet_moments_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few at a time, and never when something is due within 2 ms."""
    monkeypatch.setattr("chairlift.lab.client.driver.READ_AHEAD", 4)
    run = Run("arrivals=constant arrivals.rate=1000 count=10", takes=1)
    await settle()
    assert [index for index, _ in run.sender.prepared] == [0, 1, 2, 3]
    await run.clock.advance_to(3 * MILLISECOND)
    assert [index for index, _ in run.sender.prepared] == [0, 1, 2, 3]
    await run.until(1)
    await run.finish()

    assert [index for index, _ in run.sender.prepared] == list(range(10))


async def test_texts_are_in_the_traces_when_asked_for() -> None:
    """For comparisons of answers."""
    run = Run("arrivals=burst arrivals.size=1", takes=1, options=RunOptions(keep_text=True))
    await run.until(1)
    await run.finish()

    assert (run.traces[0].text, run.traces[0].token_ids) == ("a", (7,))
