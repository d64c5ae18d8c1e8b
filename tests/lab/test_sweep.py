from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chairlift.core.errors import ConfigError
from chairlift.devices.registry import find_device_model
from chairlift.devices.valid import ValidRange
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.runs.store import RunStore
from chairlift.lab.sweep import SimulationJob, SimulationOutcome, combinations, job, run_job, run_jobs
from tests.sim.helpers import device_model

LOAD = load_from_pairs(["arrivals=poisson", "arrivals.rate=20", "prompt=60", "output=20", "count=30"])


def made(**settings: Any) -> SimulationJob:
    """A job on an H100."""
    found = job(find_device_model("h100-sxm/llama-3.1-8b"), LOAD, {"policy": "continuous", **settings}, ["policy"])
    assert isinstance(found, SimulationJob)
    return found


def test_every_policy_meets_every_combination_of_what_is_swept() -> None:
    """The last setting turns fastest; other settings are in all; second names become first names."""
    found = list(combinations(["static", "continuous"], {"max_seq_len": [1, 2], "block_size": [8, 16]}, {"seed": 3}))

    assert len(found) == 8
    assert found[1] == {"seed": 3, "max_model_len": 1, "block_size": 16, "policy": "static"}
    assert found[-1] == {"seed": 3, "max_model_len": 2, "block_size": 16, "policy": "continuous"}


def test_processes_give_what_one_process_gives() -> None:
    """In the order asked for, and progress is told."""
    jobs = [made(max_num_seqs=rows) for rows in (1, 2, 4)]
    told: list[tuple[int, int]] = []

    alone = run_jobs(jobs, 1)
    assert run_jobs(jobs, 2, lambda *done: told.append(done)) == alone
    assert told == [(1, 3), (2, 3), (3, 3)]
    rates = [one.figures.output_tokens_per_second or 0 for one in alone if one.figures]
    assert rates == sorted(rates)
    assert len(set(rates)) == 3


def test_settings_that_cannot_be_are_an_outcome() -> None:
    """So that a sweep goes on; a setting that there is not ends it."""
    model = find_device_model("h100-sxm/llama-3.1-8b")
    found = job(model, LOAD, {"policy": "continuous", "max_num_seqs": 4096}, ["policy", "max_num_seqs"])

    assert isinstance(found, SimulationOutcome)
    assert found.varied == {"policy": "continuous", "max_num_seqs": 4096}
    assert "--max-num-batched-tokens is 512" in found.error
    with pytest.raises(ConfigError, match="a simulation has no --threads"):
        job(model, LOAD, {"policy": "static", "threads": 2}, ["policy"])


def test_a_simulation_that_breaks_off_is_an_outcome() -> None:
    """With the simulator's words; one that goes on outside the range has a note."""
    narrow = device_model(valid=ValidRange(tokens=10_000, rows=2, context=10_000, total_context=10**6))
    work = replace(made(num_kv_blocks=100), model=narrow)

    assert "--outside-range warn" in run_job(work).error
    going_on = run_job(replace(work, settings=replace(work.settings, outside_range="warn")))
    assert going_on.figures is not None
    assert any("rows in a step" in note for note in going_on.notes)


def test_requests_that_were_turned_away_are_told() -> None:
    """How many, and what was said to the first."""
    outcome = run_job(made(max_model_len=70))

    assert outcome.figures is not None
    assert (outcome.figures.refused, outcome.figures.answered) == (30, 0)
    assert outcome.notes[0].startswith("30 refused: ")


def test_a_kept_run_is_like_any_run(tmp_path: Path) -> None:
    """In the folder of runs, with the same figures."""
    outcome = run_job(replace(made(), runs=tmp_path))
    entry = next(iter(RunStore(tmp_path)))

    assert str(entry.folder) == outcome.folder
    assert outcome.figures == run_job(made()).figures
    assert outcome.figures is not None
    assert entry.manifest.results["summary"]["requests"]["answered"] == outcome.figures.answered == 30
