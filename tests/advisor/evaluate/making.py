"""Small problems for the advisor's tests: the toy device of tests.sim, 20 ms a step and 1 ms a token."""

from __future__ import annotations

from typing import Any

from chairlift.advisor.evaluate.base import problem_of
from chairlift.advisor.evaluate.rounds import Rounds, rounds_of
from chairlift.advisor.evaluate.run import Problem
from chairlift.advisor.evaluate.targets import Targets
from chairlift.devices.model import DeviceModel
from chairlift.lab.loads.files import load_from_pairs
from tests.sim.helpers import device_model


def rounds(pairs: str, count: int = 1, **more: Any) -> Rounds:
    """A load from pairs."""
    return rounds_of(load_from_pairs(pairs.split()), count=count, **more)


def problem(load: Rounds, targets: Targets | None = None, device: DeviceModel | None = None, **given: Any) -> Problem:
    """On the toy device, with a pool of 512 blocks unless told otherwise."""
    return problem_of(device or device_model(), load, targets or Targets(), {"num_kv_blocks": 512, **given})
