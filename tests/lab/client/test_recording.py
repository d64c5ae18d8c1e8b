import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from pyarrow import parquet

from chairlift.lab.client.options import Stop
from chairlift.lab.client.recorder import ClientRecorder, read_traces
from chairlift.lab.client.recording import interrupt_stops, record
from chairlift.records.client import ErrorClass, Observation, RequestTrace
from tests.lab.client.harness import PATIENCE, until

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


RUN = """
import asyncio, sys
from pathlib import Path
from chairlift.lab.client.clock import MILLISECOND
from chairlift.lab.client.null_server import Options, serve
from chairlift.lab.client.options import Stop
from chairlift.lab.client.recorder import ClientRecorder
from chairlift.lab.client.recording import interrupt_stops, record
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.targets.url import UrlTarget
from chairlift.records.client import RequestTrace

def show(one):
    if isinstance(one, RequestTrace):
        print("ended", flush=True)

async def main():
    server = await serve(Options(chunks=1, interval=MILLISECOND, first=0), "127.0.0.1", 0)
    target = UrlTarget("http://127.0.0.1:%d" % server.sockets[0].getsockname()[1])
    await target.open()
    stop, load = Stop(), load_from_pairs("arrivals=closed arrivals.users=3 count=1000000 prompt=8".split() + [
        "classes.short.share=9", "classes.short.output=2", "classes.long.share=1", "classes.long.output=1000000"])
    with ClientRecorder(Path(sys.argv[1])) as recorder, interrupt_stops(stop):
        await record(target.run(Schedule(load), stop=stop), recorder, show)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_interrupted_or_killed_leaves_a_readable_record(tmp_path: Path, number: signal.Signals) -> None:
    """In the middle of answers: an interrupt records them as cut and makes columns; a kill leaves what had ended."""
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        _, complaints = process.communicate(timeout=PATIENCE)
    errors = [trace.error for trace in read_traces(tmp_path)]

    assert None in errors
    if number is signal.SIGINT:
        assert (process.returncode, complaints) == (0, "")
        assert ErrorClass.CUT in errors
        assert parquet.read_table(tmp_path / "traces.parquet").num_rows == len(errors)
    else:
        assert process.returncode == -signal.SIGKILL
        assert set(errors) == {None}


async def test_afterwards_interrupts_are_what_they_were() -> None:
    """And so they are after the first one."""
    stop = Stop()
    loop = asyncio.get_running_loop()
    with interrupt_stops(stop):
        os.kill(os.getpid(), signal.SIGINT)
        await until(lambda: stop.requested)
        assert not loop.remove_signal_handler(signal.SIGINT)

    assert not loop.remove_signal_handler(signal.SIGTERM)
