from dataclasses import replace

import pytest

from chairlift.core.config import POLICIES, PolicyName
from chairlift.core.errors import ConfigError
from chairlift.devices.shape import StepShape
from chairlift.lab.calibration.against_run import against_run, shape_of
from chairlift.records.schema import StepRecord
from tests.sim.helpers import SHAPE, arrival, device_model, run, runner

DEVICE = replace(device_model(shape=SHAPE), step=replace(device_model().step, settling=5 * 10**12))
"""The first decode of a row takes 5 ms longer."""


def recorded(policy: PolicyName = "continuous") -> list[StepRecord]:
    """Steps of the toy device, one by one: prompts in chunks, decodes, padding and dead rows."""
    device = runner(model=DEVICE)
    arrivals = [arrival(f"r{i}", i * 10**7, tokens=20 + 9 * i, answer=3 + 2 * i) for i in range(9)]
    return run(arrivals, device, policy=policy, jump=False, max_num_batched_tokens=48)[1].steps


@pytest.mark.parametrize("policy", POLICIES)
def test_the_device_that_a_run_was_made_on_meets_all_its_steps(policy: PolicyName) -> None:
    """To the nanosecond: every shape is told again from the work recorded."""
    steps = recorded(policy)
    found = against_run(DEVICE, steps)

    assert found.all.steps == len(steps) > 15
    assert found.prompts.steps >= 5
    assert (found.decodes.error, found.prompts.error, found.all.error) == (0, 0, 0)


def test_a_device_that_is_twice_as_fast_is_half_off() -> None:
    """As a share of what was measured."""
    slower = [replace(step, device_time=2 * step.device_time) for step in recorded()]

    assert against_run(DEVICE, slower).all.error == pytest.approx(-0.5)


def test_a_shape_is_told_again() -> None:
    """Of a step of decodes alone."""
    step = next(step for step in recorded() if step.decode == step.rows == 3)
    shape = shape_of(step, SHAPE)

    assert (shape.tokens, shape.rows, shape.logits, shape.prompts, shape.pairs) == (3, 3, 3, 0, 0)
    assert shape.context > 60
    assert isinstance(shape, StepShape)


def test_what_cannot_be_told_is_refused() -> None:
    """Records of jumps, and device models without the model's sizes."""
    steps = recorded()
    with pytest.raises(ConfigError, match="stands for 2 steps"):
        against_run(DEVICE, [replace(steps[0], repeats=2)])
    with pytest.raises(ConfigError, match=r"has no \[shape\]"):
        against_run(device_model(), steps)
