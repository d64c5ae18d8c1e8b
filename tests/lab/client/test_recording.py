import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from chairlift.lab.client.options import Stop
from chairlift.lab.client.recorder import ClientRecorder, read_traces
from chairlift.lab.client.recording import interrupt_stops, record
from chairlift.records.client import Observation, RequestTrace
from tests.lab.client.harness import until

TRACES = [RequestTrace(index, 0, warmup=False, end=1) for index in range(3)]


async def some(fail: bool = False) -> AsyncGenerator[Observation, None]:  # noqa: FBT001, FBT002 - a test's switch
    """Three traces, and perhaps the end of the world."""
    for trace in TRACES:
        yield trace
    if fail:
        raise ZeroDivisionError


async def test_everything_is_written_and_shown(tmp_path: Path) -> None:
    """In the order in which it comes."""
    shown: list[Observation] = []
    with ClientRecorder(tmp_path) as recorder:
        await record(some(), recorder, shown.append)

    assert read_traces(tmp_path) == shown == TRACES


async def test_a_run_that_fails_leaves_what_it_had(tmp_path: Path) -> None:
    """The error goes on to the caller."""
    with ClientRecorder(tmp_path) as recorder, pytest.raises(ZeroDivisionError):
        await record(some(fail=True), recorder)

    assert read_traces(tmp_path) == TRACES


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupt_asks_for_an_early_end(number: signal.Signals) -> None:
    """Ctrl-C does not throw the record away."""
    stop = Stop()
    with interrupt_stops(stop):
        os.kill(os.getpid(), number)
        await until(lambda: stop.requested)


async def test_afterwards_interrupts_are_what_they_were() -> None:
    """And so they are after the first one."""
    stop = Stop()
    loop = asyncio.get_running_loop()
    with interrupt_stops(stop):
        os.kill(os.getpid(), signal.SIGINT)
        await until(lambda: stop.requested)
        assert not loop.remove_signal_handler(signal.SIGINT)

    assert not loop.remove_signal_handler(signal.SIGTERM)
