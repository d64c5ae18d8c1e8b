"""Runs a schedule against a target and writes down what happens, whatever happens."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager

from chairlift.lab.client.options import Stop
from chairlift.lab.client.recorder import ClientRecorder
from chairlift.records.client import Observation


async def record(
    observations: AsyncGenerator[Observation, None],
    recorder: ClientRecorder,
    show: Callable[[Observation], None] | None = None,
) -> None:
    """Write each observation as it comes.

    Args:
        observations: of Target.run.
        recorder: takes them; it is not closed.
        show: is given each of them, too, for progress and figures.
    """
    async with aclosing(observations):
        async for observation in observations:
            recorder.write(observation)
            if show is not None:
                show(observation)


@contextmanager
def interrupt_stops(stop: Stop) -> Iterator[None]:
    """Within this, Ctrl-C (and SIGTERM) asks a run to end early with its record whole; a second one breaks it off.

    Use it on the main thread's running event loop.
    """
    loop = asyncio.get_running_loop()

    def request() -> None:
        remove()
        stop.request()

    def remove() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, request)
    try:
        yield
    finally:
        remove()
