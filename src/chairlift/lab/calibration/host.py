"""How long the device waits for the host between two steps, at several numbers of rows: on the engine as it serves."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from chairlift.core.request import Nanoseconds
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.core import EngineCore
from chairlift.engine.loader import LoadedModel
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.targets.model import ModelTarget
from chairlift.records.observer import Observer
from chairlift.records.schema import StepRecord

STEPS = 24
"""Decode steps at each number of rows."""
_PROMPT = 8


class _Steps(Observer):
    """Keeps the steps."""

    def __init__(self) -> None:
        self.seen: list[StepRecord] = []

    def on_step(self, record: StepRecord) -> None:
        self.seen.append(record)


async def measure_host(loaded: LoadedModel, rows: Iterable[int], steps: int = STEPS) -> list[tuple[int, Nanoseconds]]:
    """(rows, host time) of many steps: so many clients at once, each of which reads a stream.

    The engine steps on its own thread and the clients live in this process, as in `chairlift bench MODEL`. The engine
    is shut down at the end, and the model with it.

    Args:
        loaded: the model, under continuous batching.
        rows: how many clients at once.
        steps: of each.
    """
    config = loaded.scheduler
    core = EngineCore(config.with_policy("continuous"), loaded.runner, loaded.tokenizer, loaded.sampler)
    target = ModelTarget(AsyncEngine(core), loaded.name)
    found: list[tuple[int, Nanoseconds]] = []
    try:
        await target.open()
        for count in rows:
            watch = _Steps()
            target.engine.attach(watch)
            pairs = f"arrivals=burst arrivals.size={count} prompt={_PROMPT} output={steps + 2}".split()
            async for _ in target.run(Schedule(load_from_pairs(pairs))):
                pass  # whatever is observed is in the steps
            target.engine.detach(watch)
            found += between_steps(watch.seen, count)
    finally:
        await target.close()
    return found


def between_steps(steps: Sequence[StepRecord], rows: int) -> list[tuple[int, Nanoseconds]]:
    """(rows, time from one plan to the next less the device's) of steps of so many decodes that follow each other."""
    return [
        (rows, after.planned - before.planned - before.device_time)
        for before, after in itertools.pairwise(steps)
        if before.decode == after.decode == rows == before.rows == after.rows
    ]
