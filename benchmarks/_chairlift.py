"""Chairlift's engine behind a pipe.

python -m benchmarks._chairlift '{"model": PATH, "threads": 2, …}'

Every further key is a setting by its name. The engine is driven in one thread; texts are detokenized as for any caller.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import asdict
from typing import Any

import openvino as ov

import chairlift
from benchmarks._loads import LOADS
from benchmarks._pipe import serve
from chairlift.core.request import Nanoseconds
from chairlift.engine.config import EngineConfig
from chairlift.engine.core import EngineCore
from chairlift.engine.drive import TimedRequest, drive
from chairlift.engine.loader import LoadedModel, load_model
from chairlift.engine.params import SamplingParams
from chairlift.records.observer import Observer
from chairlift.records.schema import StepRecord


class StepTimes(Observer):
    """Keeps the records of steps."""

    def __init__(self) -> None:
        self.steps: list[StepRecord] = []

    def on_step(self, record: StepRecord) -> None:
        self.steps.append(record)

    def host_share(self, rows: int) -> float | None:
        """Median share of host time in steps of so many decodes and nothing else, each measured from its plan to the
        next plan. None where no two such steps came one after the other.
        """
        shares = [
            1 - one.device_time / (after.planned - one.planned)
            for one, after in zip(self.steps, self.steps[1:], strict=False)
            if one.rows == one.decode == rows and after.rows == after.decode == rows
        ]
        return statistics.median(shares) if shares else None


def run_load(model: LoadedModel, name: str) -> dict[str, Any]:
    """One load on an engine of its own with an empty KV pool; the model stays loaded."""
    jobs = LOADS[name]()
    schedule = [
        TimedRequest(
            f"{name}-{i}", 0, list(job.prompt), SamplingParams(max_tokens=job.answer, temperature=0, ignore_eos=True)
        )
        for i, job in enumerate(jobs)
    ]
    times = StepTimes()
    core = EngineCore(model.scheduler, model.runner, model.tokenizer, model.sampler, observers=[times])
    begun = time.perf_counter()
    result = drive(core, schedule, _sleep)
    wall = time.perf_counter() - begun
    records = {record.request_id: record for record in result.requests}
    first = min(record.first_token_computed or 0 for record in result.requests) - result.started
    return {
        "wall": wall,
        "first": first / 1e9,
        "counts": [records[f"{name}-{i}"].output_tokens for i in range(len(jobs))],
        "steps": result.ledger.steps,
        "device": result.ledger.device / 1e9,
        "host_share_32": times.host_share(32),
        "host_share_1": times.host_share(1),
    }


def _sleep(nanoseconds: Nanoseconds) -> None:
    time.sleep(nanoseconds / 1e9)


def main() -> None:
    """Load, warm up, serve."""
    settings = json.loads(sys.argv[1])
    path = settings.pop("model")
    model = load_model(EngineConfig.of(path, {"enable_prefix_caching": False, **settings}))
    run_load(model, "warm-up")
    shape = model.runner.shape()
    about = {
        "engine": "Chairlift",
        "version": chairlift.__version__,
        "openvino": ov.get_version(),
        "shape": None if shape is None else asdict(shape),
    }
    serve(about, lambda name: run_load(model, name))


if __name__ == "__main__":
    main()
