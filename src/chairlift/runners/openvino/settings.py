"""What the OpenVINO runner can be told."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from chairlift.core.config import SchedulerConfig, flag
from chairlift.core.errors import ConfigError

KVCacheDtype = Literal["f16", "f32"]

DEFAULT_SHARE = 0.5
"""Share of the allowed memory that the process may take when nobody says otherwise. On a CPU the same memory serves the
system, the file cache and whatever else runs, and there is no device to be refused by: the kernel ends a process
instead."""


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """Device settings. None of them changes which tokens a request gets, but for kv_cache_dtype."""

    threads: int = 0
    """Threads that compute. 0: as many as the process may use (affinity and CPU quota). More than that makes every step
    slower, since threads wait for each other."""

    kv_cache_dtype: KVCacheDtype = "f16"
    """How keys and values are kept: f16 (half the memory and traffic) or f32 (closest to a reference in f32)."""

    gpu_memory_utilization: float | None = None
    """Share of the memory allowed to this process (the machine's or its control group's) that it may take, all
    included; what weights, runtime and activations leave becomes KV blocks. Too high: the pool is refused at start, or
    the system runs short later. Too low: fewer sequences run at once. Default: 0.5, and no more blocks than the
    largest number of running sequences can fill."""

    kv_cache_memory: int | None = None
    """Bytes of the KV pool; overrides gpu_memory_utilization."""

    num_kv_blocks: int | None = None
    """Usable blocks of the KV pool; overrides kv_cache_memory. Studies use it for a small pool."""

    huge_pages: bool = True
    """Move weights of 256 MiB or more into huge pages at start, where the kernel can (Linux 6.1 and later): steps of
    few sequences, which read all weights for little work, take 5 to 10% less time. Takes a second or two of the
    start."""

    def __post_init__(self) -> None:
        """Raises ConfigError on the first setting that cannot be."""
        if self.threads < 0:
            raise ConfigError(f"--threads is {self.threads}; it must be 0 (all) or positive.")
        if self.kv_cache_dtype not in get_args(KVCacheDtype):
            raise ConfigError(f"--kv-cache-dtype is {self.kv_cache_dtype!r}; it must be one of f16, f32.")
        if self.gpu_memory_utilization is not None and not 0 < self.gpu_memory_utilization <= 1:
            raise ConfigError(
                f"--gpu-memory-utilization is {self.gpu_memory_utilization}; it is a share: above 0, at most 1."
            )
        for name in ("kv_cache_memory", "num_kv_blocks"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"{flag(name)} is {value}; it must be positive.")

    @property
    def kv_element_bytes(self) -> int:
        return {"f16": 2, "f32": 4}[self.kv_cache_dtype]

    @property
    def share(self) -> float:
        """The share of the allowed memory that applies."""
        return DEFAULT_SHARE if self.gpu_memory_utilization is None else self.gpu_memory_utilization


@dataclass(frozen=True, slots=True)
class StepLimits:
    """The largest step the scheduler may plan: what memory is reserved for at start."""

    max_model_len: int
    max_tokens: int
    """Tokens of one step."""
    max_rows: int
    """Rows of one step: all may be sampled."""

    @classmethod
    def of(cls, config: SchedulerConfig) -> StepLimits:
        """Under any of the three policies, so that a live switch finds its largest step reserved for."""
        rows = max(config.max_num_seqs, config.batch_size, config.max_batch_size)
        return cls(config.max_model_len, config.max_num_batched_tokens, min(rows, config.max_num_batched_tokens))


def allowed_threads(root: Path = Path("/")) -> int:
    """CPUs this process may use at once: its affinity, cut by a control group's quota (rounded up)."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([affinity, *_quotas(root)]))


def _quotas(root: Path) -> list[int]:
    quotas = []
    for quota_file, period_file in (
        ("sys/fs/cgroup/cpu.max", None),
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "sys/fs/cgroup/cpu/cpu.cfs_period_us"),
    ):
        try:
            words = (root / quota_file).read_text("ascii").split()
            if period_file is not None:
                words += (root / period_file).read_text("ascii").split()
            quota, period = int(words[0]), int(words[1])
        except (OSError, ValueError, IndexError):
            continue  # no such control group, or no limit in it ("max")
        if quota > 0 and period > 0:
            quotas.append(math.ceil(quota / period))
    return quotas
