from chairlift.lab.client.clock import MILLISECOND, SECOND
from chairlift.lab.client.verdict import ClientLimits, judge
from chairlift.records.client import ErrorClass, HealthSample, RequestTrace


def trace(lag: int | None, error: ErrorClass | None = None) -> RequestTrace:
    """A request that was sent so late."""
    return RequestTrace(0, 100, warmup=False, end=200, sent=None if lag is None else 100 + lag, error=error)


def sample(lag: int = 0, cpu: float = 0.1, pressure: float | None = 0.0) -> HealthSample:
    """A second of the client's."""
    return HealthSample(SECOND, SECOND, (lag,), 0, 0, 0, 0, cpu, cpu, pressure)


def test_a_client_that_was_on_time_is_not_the_bottleneck() -> None:
    """All numbers within their limits, and all of them shown."""
    verdict = judge([trace(0)] * 10, [sample()] * 10)

    assert not verdict.bottleneck
    assert [one.name for one in verdict.evidence] == [
        "send_lag_p99",
        "loop_lag_p99",
        "thread_cpu_p95",
        "client_errors",
        "cpu_pressure",
    ]


def test_late_sending_makes_it_the_bottleneck() -> None:
    """Two in a hundred, 11 ms late."""
    verdict = judge([trace(0)] * 98 + [trace(11 * MILLISECOND)] * 2, [sample()])

    assert [one.name for one in verdict.reasons] == ["send_lag_p99"]
    assert verdict.reasons[0].value == 11 * MILLISECOND


def test_a_slow_event_loop_makes_it_the_bottleneck() -> None:
    """Whatever came waited for it."""
    assert [one.name for one in judge([trace(0)], [sample(lag=30 * MILLISECOND)]).reasons] == ["loop_lag_p99"]


def test_a_core_at_its_end_makes_it_the_bottleneck() -> None:
    """A thread cannot have more than one."""
    assert [one.name for one in judge([trace(0)], [sample(cpu=0.97)]).reasons] == ["thread_cpu_p95"]


def test_one_failure_of_its_own_makes_it_the_bottleneck() -> None:
    """A request that the client could not send says nothing about the target."""
    verdict = judge([trace(0), trace(0, ErrorClass.CLIENT)], [sample()])

    assert [one.name for one in verdict.reasons] == ["client_errors"]


def test_pressure_alone_is_shown_and_decides_nothing() -> None:
    """A machine that runs the server, too, is always short of cores."""
    verdict = judge([trace(0)], [sample(pressure=0.9)])

    assert not verdict.bottleneck
    assert verdict.evidence[-1].exceeded


def test_what_could_not_be_measured_convicts_nobody() -> None:
    """A run without requests, samples or pressure."""
    verdict = judge([trace(None, ErrorClass.UNSENT)], [])

    assert not verdict.bottleneck
    assert [one.value for one in verdict.evidence] == [None, None, None, 0, None]


def test_limits_are_the_callers() -> None:
    """A run that measures microseconds may be stricter."""
    strict = ClientLimits(send_lag=1000)

    assert judge([trace(1001)], [sample()], strict).bottleneck
    assert not judge([trace(1000)], [sample()], strict).bottleneck
