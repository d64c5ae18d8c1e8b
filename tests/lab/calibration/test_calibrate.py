import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from chairlift.core.config import SchedulerConfig
from chairlift.devices.file import load_device_model, save_device_model
from chairlift.devices.shape import StepShape
from chairlift.engine.loader import LoadedModel
from chairlift.engine.sampling import BatchSampler
from chairlift.lab.calibration.calibrate import Calibration, calibrate
from chairlift.lab.calibration.host import between_steps
from chairlift.records.schema import StepRecord
from chairlift.runners.simulated import SimulatedRunner
from tests.engine.tiny import byte_tokenizer
from tests.sim.helpers import SHAPE, device_model, runner


def step(**fields: int) -> StepRecord:
    """A step with these counts; all others are 0."""
    names = set(StepRecord.__annotations__) - {"policy", "batch"}
    return StepRecord(**{**dict.fromkeys(names, 0), **fields}, policy="continuous", batch=None)


def loaded(truth: SimulatedRunner) -> LoadedModel:
    """A model whose device is itself a model: what is measured is known exactly."""
    return LoadedModel(
        name="tiny",
        path=Path("tiny"),
        runner=truth,
        sampler=BatchSampler(),
        tokenizer=byte_tokenizer(),
        chat_template=None,
        scheduler=SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=128, max_model_len=256),
        memory="",
        record=None,
    )


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    """Of the toy device."""
    device = device_model(shape=SHAPE)
    device = replace(device, step=replace(device.step, settling=5 * 10**12))
    return asyncio.run(calibrate(loaded(runner(256, model=device)), rounds=7))


def test_a_device_is_found_again_from_its_steps(calibration: Calibration) -> None:
    """Every step it was measured on within two per cent, and others, too."""
    truth, found = device_model(), calibration.model
    shapes = [sample.shape for sample in calibration.measured.samples]
    shapes += [
        StepShape.decode(7, 200),
        StepShape.prefill(1, 77),
        StepShape.decode(5, 90).beside(StepShape.prefill(1, 90)),
    ]

    for shape in shapes:
        assert found.device_time(shape) == pytest.approx(truth.device_time(shape), rel=0.02), shape.describe()
    assert calibration.fit.errors["all"].left_out < 0.02
    assert found.step.settling == 5 * 10**12


def test_it_says_where_when_and_how_well(calibration: Calibration) -> None:
    """In the file, which gives the same model again; and holds to what was measured."""
    found = calibration.model

    assert found.provenance.kind == "calibrated"
    assert found.provenance.versions["chairlift"]
    assert set(found.provenance.errors) == {"decode", "prefill", "mixed", "all"}
    assert "7 repeats each" in found.provenance.notes[0]
    assert (found.valid.tokens, found.valid.rows, found.valid.context) == (128, 8, 256)
    assert found.shape == SHAPE
    assert found.host.fixed > 0


def test_the_file_gives_the_same_model(calibration: Calibration, tmp_path: Path) -> None:
    """To the last femtosecond."""
    save_device_model(calibration.model, tmp_path / "tiny.toml")

    assert load_device_model(tmp_path / "tiny.toml") == calibration.model


def test_host_time_is_from_plan_to_plan_less_the_devices() -> None:
    """Of successive decode steps of so many rows; others are passed over."""
    steps = [
        step(planned=0, device_time=700, rows=2, decode=2),
        step(planned=1000, device_time=800, rows=2, decode=2),
        step(planned=2000, device_time=800, rows=2, decode=1, prefill=5),
        step(planned=4000, device_time=800, rows=2, decode=2),
        step(planned=5000, device_time=800, rows=1, decode=1),
    ]

    assert between_steps(steps, 2) == [(2, 300)]
