"""What is said to a framework: settings of batching and of memory, by name, as far as they matter under a policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ConfigError
from chairlift.devices.memory import MemoryPlan

KVDtype = Literal["f32", "bf16", "f16", "f8", "int8"]

_ONLY: Final[Mapping[str, tuple[str, ...]]] = {
    "batch_size": ("static",),
    "max_wait": ("static",),
    "max_batch_size": ("dynamic",),
    "max_queue_delay": ("dynamic",),
    "preferred_batch_sizes": ("dynamic",),
    "padding": ("static", "dynamic"),
    "max_num_seqs": ("continuous",),
    "enable_chunked_prefill": ("continuous",),
    "watermark": ("continuous",),
    "prefill_interval": ("continuous",),
    "prefill_interval_load": ("continuous",),
    "target_itl": ("continuous",),
}
"""Settings that matter under some policies only."""
_EFFECTIVE: Final = ("kv_reservation", "padding", "release")
"""Settings whose None stands for a default of the policy."""


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Settings of memory and of devices; None: nothing is said about it."""

    gpu_memory_utilization: float | None = None
    kv_cache_memory: int | None = None
    """Bytes of the KV pool on one device."""
    num_kv_blocks: int | None = None
    """Usable blocks."""
    block_size: int | None = None
    """Tokens in a block."""
    kv_dtype: KVDtype | None = None
    tensor_parallel_size: int = 1
    plan: MemoryPlan | None = None
    """How the memory is divided, where it is known: shares of something else than the whole device need it."""

    def __post_init__(self) -> None:
        """Raises ConfigError on a setting that cannot be."""
        share = self.gpu_memory_utilization
        if share is not None and not 0 < share <= 1:
            raise ConfigError(f"--gpu-memory-utilization is {share}; it must be above 0 and at most 1.")
        for name in ("kv_cache_memory", "num_kv_blocks", "block_size", "tensor_parallel_size"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"--{name.replace('_', '-')} is {value}; it must be positive.")


@dataclass(frozen=True, slots=True)
class Settings:
    """Both together."""

    scheduler: SchedulerConfig
    memory: MemorySettings

    def values(self) -> dict[str, Any]:
        """Every setting that matters under the policy, by name; defaults that a policy stands for are filled in."""
        config, memory = self.scheduler, self.memory
        values = {one.name: getattr(config, one.name) for one in dataclasses.fields(config)}
        values |= {name: getattr(config, f"effective_{name}") for name in _EFFECTIVE}
        values |= {name: getattr(memory, name) for name in memory_names()}
        if config.prefill_interval == 1:
            del values["prefill_interval_load"]  # it says when the interval applies, and there is none
        return {name: value for name, value in values.items() if matters(name, config.policy)}


def matters(setting: str, policy: str) -> bool:
    """Whether a setting has an effect under a policy."""
    return policy in _ONLY.get(setting, (policy,))


def memory_names() -> tuple[str, ...]:
    """Settings of memory that can be said."""
    return tuple(one.name for one in dataclasses.fields(MemorySettings) if one.name != "plan")
