"""A device that is only a model of one: it says how long a step takes and what memory it needs, and computes nothing.

It has no clock and does not sleep; whoever drives it moves a virtual time on by what it says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from chairlift.core.config import KVCapacity, SchedulerConfig, flag
from chairlift.core.errors import ConfigError
from chairlift.core.plan import StepOutcome, StepPlan
from chairlift.core.request import Nanoseconds, TokenId
from chairlift.core.runs import TokenRuns
from chairlift.core.work import ModelShape
from chairlift.devices.memory import MemoryPlan
from chairlift.devices.model import DeviceModel
from chairlift.devices.quantities import PER_NANOSECOND
from chairlift.devices.shape import StepShape
from chairlift.devices.valid import Outside, RangeGuard
from chairlift.records.gaps import GapRun, fitting
from chairlift.runners.base import ModelRunner

TOKEN: Final[TokenId] = 0
"""The one id that it generates."""


@dataclass(frozen=True, slots=True)
class SimulatorSettings:
    """How the simulated device is used."""

    gpu_memory_utilization: float = 0.9
    """Share of the device's memory that may be used; what weights, runtime and activations leave of it becomes KV
    blocks."""

    kv_cache_memory: int | None = None
    """Bytes of the KV pool; overrides gpu_memory_utilization."""

    num_kv_blocks: int | None = None
    """Blocks of the KV pool; overrides kv_cache_memory. Needed where the device model says nothing of memory."""

    block_size: int = 16
    """Tokens in a KV block."""

    outside_range: Outside = "refuse"
    """What to do with a step larger than the device model was made for: refuse to go on, or warn."""

    def __post_init__(self) -> None:
        for name in ("kv_cache_memory", "num_kv_blocks", "block_size"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"{flag(name)} is {value}; it must be at least 1.")

    def runner(self, model: DeviceModel, config: SchedulerConfig) -> SimulatedRunner:
        """A device used so.

        Raises:
            ConfigError, OutOfDeviceMemory: as SimulatedRunner.of.
        """
        return SimulatedRunner.of(
            model,
            config,
            block_size=self.block_size,
            gpu_memory_utilization=self.gpu_memory_utilization,
            kv_cache_memory=self.kv_cache_memory,
            num_kv_blocks=self.num_kv_blocks,
            outside=self.outside_range,
        )


@dataclass(frozen=True, slots=True)
class RepeatTimes:
    """How long the device works in each repeat of a step. See StepOutcome.times."""

    model: DeviceModel
    shape: StepShape
    settling: Nanoseconds = 0
    """In the first."""

    def __call__(self, repeat: int, /) -> Nanoseconds:
        return self.model.device_time(self.shape.after(repeat)) + (0 if repeat else self.settling)


@dataclass(slots=True)
class Execution:
    """A plan carried out, once or several times."""

    times: int
    outcome: StepOutcome | None
    """None: the step did not happen, and its plan is to be aborted."""
    wall: Nanoseconds
    """From the plan to the commit of the last repeat: device and host."""

    def gaps(self) -> tuple[GapRun, ...]:
        """From the plan to the first repeat's end, and from each to the next."""
        return (GapRun(1, self.wall),)


@dataclass(slots=True)
class _Modelled(Execution):
    model: DeviceModel
    shape: StepShape
    settling: Nanoseconds

    def gaps(self) -> tuple[GapRun, ...]:
        if self.times == 1:
            return (GapRun(1, self.wall),)
        model, shape, times = self.model, self.shape, self.times
        host = model.host_time(shape)
        first: tuple[GapRun, ...] = ()
        if self.settling:
            first = (GapRun(1, model.device_time(shape) + host + self.settling),)
            shape, times = shape.after(1), times - 1
        return first + tuple(
            run
            for steps, start, step, divisor in model.repeats(shape, times)
            for run in fitting(GapRun(steps, host, start, step, divisor))
        )


class SimulatedRunner(ModelRunner):
    """Executes plans on a device model.

    Args:
        model: how long a step takes.
        memory: how the device's memory is divided: gives the KV pool, and refuses steps that do not fit. Or the pool
            alone, where nothing is known of the memory.
        outside: what to do with a step that the model was not made for.
    """

    def __init__(self, model: DeviceModel, memory: MemoryPlan | KVCapacity, outside: Outside = "refuse") -> None:
        self.model = model
        self.memory = memory if isinstance(memory, MemoryPlan) else None
        self.range = RangeGuard(model.valid, model.name, outside)
        self._capacity = memory.capacity if isinstance(memory, MemoryPlan) else memory
        self._rows: int | None = None
        """Of the step before, if it was of decodes alone."""

    @classmethod
    def of(
        cls,
        model: DeviceModel,
        config: SchedulerConfig,
        *,
        block_size: int = 16,
        gpu_memory_utilization: float = 0.9,
        kv_cache_memory: int | None = None,
        num_kv_blocks: int | None = None,
        outside: Outside = "refuse",
    ) -> SimulatedRunner:
        """A runner whose memory is divided for these settings, whatever policy they are switched to.

        Raises:
            ConfigError: a setting that cannot be, or the model knows nothing of memory and num_kv_blocks is missing.
            OutOfDeviceMemory: the weights do not fit, not one KV block does, or the pool asked for does not.
        """
        if model.memory is None:
            if num_kv_blocks is None:
                raise ConfigError(f"{model.name} says nothing of memory: set --num-kv-blocks.")
            if num_kv_blocks < 1 or block_size < 1:
                raise ConfigError(f"{num_kv_blocks} KV blocks of {block_size} tokens hold nothing.")
            return cls(model, KVCapacity(block_size, num_kv_blocks, scratch_block=num_kv_blocks), outside)
        memory = model.memory.plan(
            gpu_memory_utilization=gpu_memory_utilization,
            block_size=block_size,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_rows=max(config.max_num_seqs, config.batch_size, config.max_batch_size),
            kv_cache_memory=kv_cache_memory,
            num_kv_blocks=num_kv_blocks,
        )
        return cls(model, memory, outside)

    def capacity(self) -> KVCapacity:
        return self._capacity

    def shape(self) -> ModelShape | None:
        return self.model.shape

    def execute(self, plan: StepPlan) -> StepOutcome:
        """See ModelRunner.execute.

        Raises:
            OutOfDeviceMemory: the step's activations exceed what is left beside the KV pool.
            OutsideValidRange: the device model was not made for such a step, and `outside` is refuse.
        """
        shape = self._checked(plan, 1)
        return StepOutcome([TOKEN] * sum(plan.samples), self.model.device_time(shape) + self._settle(shape))

    def run(self, plan: StepPlan, most: int = 1, within: Nanoseconds | None = None) -> Execution:
        """A plan carried out up to `most` times, as horizon() allows.

        Args:
            plan: the step.
            most: how often it may be repeated.
            within: how long from now until something comes: the step in which it does is the last. None: nothing will.

        Raises:
            OutOfDeviceMemory, OutsideValidRange: as execute().
        """
        model = self.model
        shape = StepShape.of(plan)
        times, settling = most, self._settle(shape)
        if most > 1 and within is not None:
            times = min(most, model.steps_within(shape, within - 1 - settling, most) + 1)
        self._check(shape, times)
        device_time = model.device_time(shape, times) + settling
        wall = device_time + model.host_time(shape, times)
        samples = sum(plan.samples)
        if times == 1:
            return _Modelled(1, StepOutcome([TOKEN] * samples, device_time), wall, model, shape, settling)
        tokens = TokenRuns.constant(TOKEN, samples * times)
        outcome = StepOutcome(tokens, device_time, times=RepeatTimes(model, shape, settling))
        return _Modelled(times, outcome, wall, model, shape, settling)

    def ready(self, now: Nanoseconds) -> Nanoseconds:
        """When the next plan is made, after a commit or an event at `now`: at once."""
        return now

    def _settle(self, shape: StepShape) -> Nanoseconds:
        """What this step takes beside its own time, on account of the one before it. See StepTerms.settling."""
        before, self._rows = self._rows, None if shape.prompts else shape.rows
        return 0 if shape.prompts or before == shape.rows else self.model.step.settling // PER_NANOSECOND

    def _checked(self, plan: StepPlan, times: int) -> StepShape:
        shape = StepShape.of(plan)
        self._check(shape, times)
        return shape

    def _check(self, shape: StepShape, times: int) -> None:
        if self.memory is not None:
            self.memory.check_step(shape)
        self.range.check(shape, times)
