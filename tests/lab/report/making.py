"""Runs on disk to report on: simulated, so that they are the same each time, and written as the engine writes."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from chairlift.core.config import PolicyName, SchedulerConfig
from chairlift.engine.recording import results
from chairlift.records.manifest import Manifest
from chairlift.records.writer import RunWriter
from chairlift.runners.simulated import SimulatedRunner
from chairlift.sim.events import Arrival, OpenLoop
from chairlift.sim.loop import Simulation
from tests.sim.helpers import SECOND, arrival, runner


def staggered(count: int = 24, gap: int = SECOND // 4, answer: int = 20, long_answer: int = 160) -> list[Arrival]:
    """Arrivals at a steady pace, each eighth answer long."""
    return [
        arrival(f"request-{i}", i * gap, tokens=24 + (29 * i) % 73, answer=long_answer if i % 8 == 4 else answer)
        for i in range(count)
    ]


def engine_run(
    folder: Path,
    policy: PolicyName = "continuous",
    arrivals: list[Arrival] | None = None,
    device: SimulatedRunner | None = None,
    load: str = "staggered",
    *,
    jump: bool = False,
    **settings: Any,
) -> Path:
    """A closed run of a simulated engine.

    Args:
        folder: of the run.
        policy: of the scheduler.
        arrivals: default: staggered().
        device: default: twenty milliseconds a step and one a token.
        load: its name.
        jump: make equal steps at once, so that a record stands for many.
        settings: of the scheduler.
    """
    slots = {"batch_size": 8, "max_batch_size": 8, "max_num_seqs": 8, "max_model_len": 512}
    config = SchedulerConfig(policy=policy, **{**slots, **settings})
    device = device or runner(num_blocks=256)
    writer = RunWriter(
        folder,
        Manifest(
            source="simulator",
            started="2026-01-01T00:00:00.000+00:00",
            clock_zero=0.0,
            chairlift="0",
            model={"name": "toy"},
            settings=asdict(config),
            capacity=asdict(device.capacity()),
            load={"name": load},
            machine={"system": "Linux", "processor": "toy", "cpus": 2},
            versions={"numpy": "2"},
        ),
    )
    source = OpenLoop(staggered() if arrivals is None else arrivals)
    result = Simulation(config, device, source, observers=[writer], jump=jump).run()
    writer.close(results=results(result))
    return folder
