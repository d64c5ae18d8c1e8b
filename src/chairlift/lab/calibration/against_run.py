"""How well a device model meets the steps of a recorded run: its own error, apart from the simulator's.

A step's record has the work it was; from that its shape can be told again, and the device model asked about it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from chairlift.core.errors import ConfigError
from chairlift.core.work import ModelShape
from chairlift.devices.model import DeviceModel
from chairlift.devices.quantities import PER_NANOSECOND
from chairlift.devices.shape import StepShape
from chairlift.records.schema import StepRecord


@dataclass(frozen=True, slots=True)
class StepsMet:
    """Time of a run's steps: measured, and as the device model has them. Seconds."""

    steps: int
    measured: float
    predicted: float

    @property
    def error(self) -> float | None:
        """Predicted / measured - 1."""
        return self.predicted / self.measured - 1 if self.measured else None


@dataclass(frozen=True, slots=True)
class AgainstRun:
    """A device model beside a run."""

    decodes: StepsMet
    """Steps of one-token rows alone."""
    prompts: StepsMet
    """Steps with prompts in them."""

    @property
    def all(self) -> StepsMet:
        """Both."""
        one, other = self.decodes, self.prompts
        return StepsMet(one.steps + other.steps, one.measured + other.measured, one.predicted + other.predicted)


def against_run(model: DeviceModel, steps: Iterable[StepRecord]) -> AgainstRun:
    """Ask a device model about every step of a run.

    Args:
        model: with the model's shape.
        steps: of an engine; each a single step.

    Raises:
        ConfigError: the device model does not know the model's shape, or a record is of several steps.
    """
    if model.shape is None:
        raise ConfigError(f"{model.name} has no [shape]: what its steps were cannot be told from their records.")
    times = {False: [0, 0, 0], True: [0, 0, 0]}
    rows: int | None = None
    for step in steps:
        if step.repeats != 1:
            raise ConfigError(f"step {step.step} stands for {step.repeats} steps: take the records of an engine.")
        shape = shape_of(step, model.shape)
        found = times[shape.prompts > 0]
        found[0] += 1
        found[1] += step.device_time
        found[2] += model.device_time(shape)
        if not shape.prompts and shape.rows != rows:
            found[2] += model.step.settling // PER_NANOSECOND
        rows = None if shape.prompts else shape.rows
    decodes, prompts = (StepsMet(count, real / 1e9, ours / 1e9) for count, real, ours in times.values())
    return AgainstRun(decodes, prompts)


def shape_of(step: StepRecord, shape: ModelShape) -> StepShape:
    """What a recorded step cost by, told from its work. See chairlift.core.work.work_of()."""
    singles = step.decode + step.dead
    kv = shape.kv_bytes_per_token
    tokens = step.prefill + step.recompute + step.padding
    sampled = step.samples - step.decode
    linear = tokens * shape.linear_flops_per_token + sampled * shape.head_flops_per_sample
    return StepShape(
        tokens=singles + tokens,
        rows=step.rows,
        logits=singles + sampled,
        context=step.decode_kv_bytes // kv - singles,
        growth=step.decode,
        pairs=(step.prefill_flops - linear) // shape.attention_flops_per_pair,
        prompt_context=step.prefill_kv_bytes // kv - tokens,
        prompts=step.rows - singles,
    )
