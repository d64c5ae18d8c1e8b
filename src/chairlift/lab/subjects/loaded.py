"""A model on the device between runs: what room was made for, and whose engine it is lent to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from chairlift.core.config import KVCapacity
from chairlift.core.plan import StepOutcome, StepPlan
from chairlift.core.work import ModelShape
from chairlift.engine.config import EngineConfig
from chairlift.engine.loader import LoadedModel
from chairlift.runners.base import ModelRunner
from chairlift.runners.openvino.settings import RunnerSettings, StepLimits


@dataclass(slots=True)
class Loaded:
    """A model on the device, and what room was made for."""

    model: LoadedModel
    reserved: list[EngineConfig]
    """What it was loaded for."""
    runner: RunnerSettings
    """As it was loaded with."""
    limits: StepLimits = field(init=False)

    def __post_init__(self) -> None:
        self.limits = _limits(self.reserved)

    def serves(self, config: EngineConfig) -> bool:
        """Whether a run fits without loading again: no larger steps, the same device, no more KV blocks."""
        wanted, most = StepLimits.of(config.scheduler), self.limits
        if wanted.max_tokens > most.max_tokens or wanted.max_rows > most.max_rows:
            return False
        if wanted.max_model_len > most.max_model_len:
            return False
        blocks = config.runner.num_kv_blocks
        if blocks is None:
            return config.runner == self.runner
        device = replace(self.runner, num_kv_blocks=None)
        return device_of(config) == device and blocks <= self.model.runner.capacity().num_blocks


class Lent(ModelRunner):
    """A runner that outlives the engine, or the first blocks of its pool."""

    def __init__(self, runner: ModelRunner, num_blocks: int | None) -> None:
        self._runner = runner
        capacity = runner.capacity()
        self._capacity = capacity if num_blocks is None else replace(capacity, num_blocks=num_blocks)

    def capacity(self) -> KVCapacity:
        return self._capacity

    def shape(self) -> ModelShape | None:
        return self._runner.shape()

    def execute(self, plan: StepPlan) -> StepOutcome:
        return self._runner.execute(plan)

    def forget(self, request_id: str) -> None:
        self._runner.forget(request_id)


def _limits(configs: Iterable[EngineConfig]) -> StepLimits:
    """The largest step under any of these."""
    several = [StepLimits.of(config.scheduler) for config in configs]
    return StepLimits(
        max_model_len=max(one.max_model_len for one in several),
        max_tokens=max(one.max_tokens for one in several),
        max_rows=max(one.max_rows for one in several),
    )


def largest_of(reserved: list[EngineConfig], like: EngineConfig) -> EngineConfig:
    """One configuration whose largest step is the largest of all, on the device of `like`."""
    limits = _limits(reserved)
    scheduler = replace(
        like.scheduler,
        max_model_len=limits.max_model_len,
        max_num_batched_tokens=limits.max_tokens,
        max_num_seqs=limits.max_rows,
    )
    blocks = [one.runner.num_kv_blocks for one in reserved if device_of(one) == device_of(like)]
    known = [count for count in blocks if count is not None]
    return replace(
        like,
        scheduler=scheduler,
        runner=replace(like.runner, num_kv_blocks=max(known) if len(known) == len(blocks) else None),
        fit_max_model_len=any(one.fit_max_model_len for one in reserved),
    )


def device_of(config: EngineConfig) -> RunnerSettings:
    """Its device's settings, blocks aside."""
    return replace(config.runner, num_kv_blocks=None)
