"""A result is a function of load, settings and device model alone."""

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from chairlift.core.config import POLICIES
from chairlift.records.rows import KINDS
from chairlift.records.writer import RunWriter
from chairlift.runners.simulated import SimulatedRunner
from chairlift.sim.events import OpenLoop
from chairlift.sim.loop import simulate
from tests.core.strategies import random_setup
from tests.records.samples import manifest
from tests.sim.helpers import random_arrivals, random_model, random_others

CLOCKS = [
    name
    for name in dir(time)
    if name in {"sleep", "localtime", "gmtime", "ctime"}
    or name.removesuffix("_ns").endswith(("time", "monotonic", "counter"))
]


def write_runs(folder: Path) -> None:
    """Simulate a few random loads under each policy, and write all their records."""
    for number in range(12):
        policy = POLICIES[number % 3]
        setup, draw = random_setup(number, policy=policy), Random(number)
        model, span = random_model(draw), 10**9
        source = OpenLoop(random_arrivals(draw, setup, span), random_others(draw, setup, span))
        with RunWriter(folder / f"{number}", manifest(source="simulator"), parquet=False) as writer:
            simulate(setup.config, SimulatedRunner(model, setup.capacity), source, observers=[writer])


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_bytes_in_another_process_while_the_machine_is_busy(tmp_path: Path) -> None:
    """Every file of every run, with other string hashes and a child that takes what it can get of the processor."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        there = f"from pathlib import Path; write_runs(Path({str(tmp_path / 'there')!r}))"
        program = f"from tests.sim.test_purity import write_runs; {there}"
        write_runs(tmp_path / "here")
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            cwd=Path(__file__).parents[2],
            env={"PYTHONHASHSEED": "12345", "PYTHONPATH": "src"},
        )
        assert busy.poll() is None
    finally:
        busy.kill()
        busy.wait()

    written = _content(tmp_path / "here")
    assert written == _content(tmp_path / "there")
    assert len(written) == 12 * (len(KINDS) + 1)
    assert sum(map(len, written.values())) > 100_000


def test_no_clock_is_looked_at_and_nobody_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every function of time raises, also where a module has it by its own name; and so does starting a thread."""
    assert {"time", "monotonic_ns", "perf_counter", "sleep"} <= set(CLOCKS)
    forbidden = {getattr(time, name) for name in CLOCKS}

    def fail(*args: object, **keywords: object) -> None:
        raise AssertionError("a simulation looked at a clock, slept or started a thread")

    ours = [module for name, module in sys.modules.items() if name.startswith("chairlift")]
    gc.disable()  # whoever listens to the collector may time it
    try:
        with monkeypatch.context() as patch:
            for module in (time, *ours):
                for name, value in vars(module).copy().items():
                    if isinstance(value, Callable) and value in forbidden:  # type: ignore[arg-type]
                        patch.setattr(module, name, fail)
            patch.setattr(threading.Thread, "start", fail)
            with pytest.raises(AssertionError, match="looked at a clock"):
                time.monotonic_ns()
            write_runs(tmp_path)
    finally:
        gc.enable()
