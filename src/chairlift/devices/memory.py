"""A device's memory: what weights and activations take, what is left for KV blocks, and when a step is too large.

    budget   = gpu_memory_utilization x capacity
    KV pool  = budget - weights - runtime - activations of the largest permitted step
    headroom = capacity - unseen - weights - runtime - KV pool

A step whose activations exceed the headroom runs out of memory, as on a real device. `unseen` is what the budget does
not see, so that a share close to 1 starts well and fails later, which is how it goes in practice too. All sizes are
bytes on one device; with tensor parallelism each device holds its part.
"""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.core.config import KVCapacity, flag
from chairlift.core.errors import ConfigError, DeviceModelError, OutOfDeviceMemory
from chairlift.devices.quantities import show_size
from chairlift.devices.shape import StepShape


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """Sizes in bytes, on one device."""

    capacity: int
    """The device's memory as its driver reports it."""
    weights: int
    runtime: int
    """Context, libraries and buffers: there before the KV pool is sized, and seen by the budget."""
    kv_bytes_per_token: int
    """Keys and values of one position over all layers, this device's part."""
    unseen: int = 0
    """Taken outside the budget: captured graphs, fragmentation of the allocator, other processes."""
    activation_fixed: int = 0
    activation_per_token: int = 0
    """Peak of live activations for each token of a step."""
    activation_per_logits: int = 0
    """Peak for each row whose logits are computed."""

    def __post_init__(self) -> None:
        """Raises DeviceModelError on a size that cannot be."""
        for name in self.__slots__:
            least = 1 if name in ("capacity", "kv_bytes_per_token") else 0
            if (value := getattr(self, name)) < least:
                raise DeviceModelError(f"the size {name} is {value} bytes; it must be at least {least}.")

    def activations(self, tokens: int, logits: int) -> int:
        """Peak of a step of so many tokens and rows of logits."""
        return self.activation_fixed + self.activation_per_token * tokens + self.activation_per_logits * logits

    def plan(
        self,
        *,
        gpu_memory_utilization: float,
        block_size: int,
        max_num_batched_tokens: int,
        max_rows: int,
        kv_cache_memory: int | None = None,
        num_kv_blocks: int | None = None,
    ) -> MemoryPlan:
        """Divide the memory.

        Args:
            gpu_memory_utilization: share of the device's memory that may be used, above 0 and up to 1.
            block_size: tokens in a KV block.
            max_num_batched_tokens: tokens of the largest permitted step.
            max_rows: its rows.
            kv_cache_memory: bytes of the KV pool on one device, instead of what the share leaves.
            num_kv_blocks: usable blocks, instead of both.

        Raises:
            ConfigError: a setting that cannot be.
            OutOfDeviceMemory: the weights do not fit, not one block does, or the pool asked for does not.
        """
        if not 0 < gpu_memory_utilization <= 1:
            raise ConfigError(
                f"--gpu-memory-utilization is {gpu_memory_utilization}; it must be above 0 and at most 1."
            )
        for name, value in (
            ("block_size", block_size), ("kv_cache_memory", kv_cache_memory), ("num_kv_blocks", num_kv_blocks)
        ):  # fmt: skip
            if value is not None and value < 1:
                raise ConfigError(f"{flag(name)} is {value}; it must be at least 1.")
        block_bytes = block_size * self.kv_bytes_per_token
        peak = self.activations(max_num_batched_tokens, max_rows)
        if num_kv_blocks is not None:
            blocks, decided_by = num_kv_blocks, "--num-kv-blocks"
        elif kv_cache_memory is not None:
            blocks, decided_by = kv_cache_memory // block_bytes - 1, "--kv-cache-memory"
        else:
            budget = int(self.capacity * gpu_memory_utilization)
            blocks = (budget - self.weights - self.runtime - peak) // block_bytes - 1
            decided_by = "--gpu-memory-utilization"
        plan = MemoryPlan(self, gpu_memory_utilization, peak, block_size, blocks, decided_by)
        if blocks < 1:
            raise OutOfDeviceMemory(plan.too_little())
        if plan.headroom < 0:
            raise OutOfDeviceMemory(
                f"a KV pool of {show_size(plan.kv_pool)} ({decided_by}) beside {show_size(self.weights)} of weights "
                f"and {show_size(self.runtime + self.unseen)} of runtime exceeds the {show_size(self.capacity)} of "
                f"the device by {show_size(-plan.headroom)}: at most --num-kv-blocks {max(0, plan.most_blocks)} fit."
            )
        return plan


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How one device's memory is divided: shown at start, and asked at every step."""

    model: MemoryModel
    gpu_memory_utilization: float
    activations: int
    """Peak of the largest permitted step."""
    block_size: int
    num_blocks: int
    """Usable KV blocks; one more is kept as scratch."""
    decided_by: str
    """The flag that gave num_blocks."""

    @property
    def block_bytes(self) -> int:
        return self.block_size * self.model.kv_bytes_per_token

    @property
    def budget(self) -> int:
        return int(self.model.capacity * self.gpu_memory_utilization)

    @property
    def kv_pool(self) -> int:
        """All blocks, the scratch block included."""
        return (self.num_blocks + 1) * self.block_bytes

    @property
    def headroom(self) -> int:
        """What a step's activations may take."""
        return self._outside_pool - self.kv_pool

    @property
    def most_blocks(self) -> int:
        """Usable blocks that would leave room for the activations of the largest permitted step."""
        return (self._outside_pool - self.activations) // self.block_bytes - 1

    @property
    def capacity(self) -> KVCapacity:
        """The pool as a scheduler takes it."""
        return KVCapacity(self.block_size, self.num_blocks, scratch_block=self.num_blocks, block_bytes=self.block_bytes)

    @property
    def longest_sequence(self) -> int:
        """Tokens of one sequence alone in the pool."""
        return self.num_blocks * self.block_size

    def check_step(self, shape: StepShape) -> None:
        """Raises OutOfDeviceMemory when the step's activations exceed the headroom."""
        peak = self.model.activations(shape.tokens, shape.logits)
        if peak > self.headroom:
            raise OutOfDeviceMemory(
                f"a step of {shape.tokens:,} tokens and {shape.logits:,} rows of logits needs {show_size(peak)} for "
                f"activations; weights, runtime and a KV pool of {self.num_blocks:,} blocks ({self.decided_by}) leave "
                f"{show_size(max(0, self.headroom))}. Lower --gpu-memory-utilization (it is "
                f"{self.gpu_memory_utilization:g}) or --max-num-batched-tokens."
            )

    def too_little(self) -> str:
        """Why not one block fits, and what would help."""
        model = self.model
        needed = model.weights + model.runtime + self.activations + 2 * self.block_bytes
        return (
            f"{show_size(model.weights)} of weights, {show_size(model.runtime)} of runtime and "
            f"{show_size(self.activations)} of activations leave no KV block of {show_size(self.block_bytes)} in "
            f"{show_size(self.budget)} ({self.decided_by}, {self.gpu_memory_utilization:g} of "
            f"{show_size(model.capacity)}); {show_size(needed)} would do. Raise --gpu-memory-utilization, lower "
            f"--max-num-batched-tokens, or spread the model over more devices (--tensor-parallel-size)."
        )

    def __str__(self) -> str:
        """The sum as start-up prints it."""
        model, tokens = self.model, self.num_blocks * self.block_size
        rows = (
            ("weights", model.weights, ""),
            ("runtime", model.runtime, ""),
            ("activations", self.activations, "largest permitted step"),
            ("KV cache", self.kv_pool, f"{self.num_blocks:,} blocks = {tokens:,} tokens, by {self.decided_by}"),
            ("outside the budget", model.unseen, ""),
        )
        head = f"memory: {show_size(model.capacity)} on a device, share {self.gpu_memory_utilization:g}"
        return "\n".join([head, *(f"  {name:<20}{show_size(size):>11}   {note}".rstrip() for name, size, note in rows)])

    @property
    def _outside_pool(self) -> int:
        model = self.model
        return model.capacity - model.unseen - model.weights - model.runtime
