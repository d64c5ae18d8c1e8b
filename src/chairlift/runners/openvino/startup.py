"""What happens once, before the first request: warm up, measure, and divide the memory."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from chairlift.core.errors import ConfigError, OutOfDeviceMemory
from chairlift.runners.openvino.architecture import Architecture
from chairlift.runners.openvino.compiled import CompiledModel
from chairlift.runners.openvino.graph import BLOCK_SIZE
from chairlift.runners.openvino.huge_pages import collapse_resident_memory
from chairlift.runners.openvino.inputs import StepInputs, columns_to_inputs
from chairlift.runners.openvino.kvpool import RESERVE, KVPool
from chairlift.runners.openvino.memory import (
    MIB,
    AllowedMemory,
    format_bytes,
    peak_resident_bytes,
    reset_peak,
    resident_bytes,
    return_freed_memory,
)
from chairlift.runners.openvino.settings import RunnerSettings, StepLimits

WARM_UP_TOKENS = 8

HUGE_PAGES_FROM = 256 * MIB
"""Bytes of weights below which a step gains one or two per cent from huge pages: not worth a longer start."""


def check_context(limits: StepLimits, architecture: Architecture) -> None:
    """Refuse contexts that the model was not made for.

    Raises:
        ConfigError: max_model_len is too long; the message has the longest.
    """
    longest = architecture.longest_context
    if limits.max_model_len > longest:
        why = f"the model was trained for {architecture.context_length:,} positions"
        if longest < architecture.context_length:
            why = f"beyond {longest:,} the model's sliding window would bind, which this build does not compute"
        raise ConfigError(f"--max-model-len is {limits.max_model_len:,}, but {why}: lower it to {longest:,}.")


def largest_step(limits: StepLimits) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Starts and counts of the most demanding step: all rows and tokens there may be, at the end of full contexts."""
    length, rows = limits.max_model_len, limits.max_rows
    counts = [1] * rows
    left = min(limits.max_tokens, rows * length) - rows
    for row in reversed(range(rows)):
        more = min(left, length - 1)
        counts[row] += more
        left -= more
    return tuple(length - count for count in counts), tuple(counts)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Measured growth of the process, bytes."""

    weights_and_runtime: int
    activations: int


def huge_pages_seconds(settings: RunnerSettings, weight_bytes: int) -> float:
    """How long the start may be held up for moving weights into huge pages: not at all for a small model."""
    if not settings.huge_pages or weight_bytes < HUGE_PAGES_FROM:
        return 0.0
    return 1.0 + 2.0 * weight_bytes / 2**30


def warm_up_and_measure(model: CompiledModel, limits: StepLimits, before: int, huge_pages: float = 0.0) -> Footprint:
    """Run the shapes that matter on a pool of one block, to which every table points.

    The plugin packs weights when it first meets a shape, once for several tokens and again for a single one: both are
    run before anything is measured, so that the largest step's growth is activations alone.

    Args:
        model: newly compiled.
        limits: the largest step.
        before: resident bytes before the model was opened.
        huge_pages: seconds for moving what was packed into huge pages; 0 leaves it where it is.
    """
    pool = KVPool((1, *model.cache_shape), model.layers, model.cache_element)
    model.use_caches(pool.tensors)
    for count in (min(WARM_UP_TOKENS, limits.max_model_len), 1):
        run_on_one_block(model, (0,), (count,))
    model.release_files()
    return_freed_memory()
    if huge_pages:
        collapse_resident_memory(huge_pages)
    packed = resident_bytes()
    reset_peak()
    run_on_one_block(model, *largest_step(limits))
    return Footprint(packed - before, max(0, max(peak_resident_bytes(), resident_bytes()) - packed))


def run_on_one_block(model: CompiledModel, starts: tuple[int, ...], counts: tuple[int, ...]) -> None:
    """Compute rows whose tables name block 0 again and again: the work is real, the result means nothing."""
    model.set_inputs(one_block_inputs(starts, counts))
    model.infer()


def one_block_inputs(starts: tuple[int, ...], counts: tuple[int, ...]) -> StepInputs:
    """Inputs of such rows; every row is sampled."""
    tables = [
        array("i", bytes(4 * -(-(start + count) // BLOCK_SIZE))) for start, count in zip(starts, counts, strict=True)
    ]
    rows = np.arange(len(counts))
    return columns_to_inputs((0,) * sum(counts), starts, counts, (0,) * len(counts), tables, rows)


@dataclass(frozen=True, slots=True)
class PoolSize:
    """Usable blocks, and the setting that gave them."""

    num_blocks: int
    decided_by: str


def size_pool(
    settings: RunnerSettings, limits: StepLimits, allowed: AllowedMemory, taken: int, block_bytes: int
) -> PoolSize:
    """How many usable blocks the pool gets: num_kv_blocks, or kv_cache_memory, or what the share leaves.

    One more, the scratch block, is always taken beside them.

    Args:
        settings: what was asked for.
        limits: max_model_len must fit.
        allowed: measured at start.
        taken: bytes of process, weights, runtime and activations.
        block_bytes: of one block over all layers.

    Raises:
        OutOfDeviceMemory: a sequence of max_model_len does not fit; the message has the longest that would.
    """
    needed = -(-limits.max_model_len // BLOCK_SIZE)
    size = _wished_pool(settings, limits, allowed, taken, block_bytes)
    if size.num_blocks >= needed:
        return size
    largest = max(0, size.num_blocks) * BLOCK_SIZE
    lower = f" Lower --max-model-len to {largest:,}, or g" if largest else " G"
    raise OutOfDeviceMemory(
        f"--max-model-len {limits.max_model_len:,} needs {needed:,} KV blocks of {BLOCK_SIZE} "
        f"({format_bytes(block_bytes)} each), but {size.decided_by} leaves {max(0, size.num_blocks):,}: "
        f"weights, runtime and activations take {format_bytes(taken)}.{lower}ive "
        f"{format_bytes(taken + (needed + 1) * block_bytes)} in all: raise --gpu-memory-utilization, "
        f"--kv-cache-memory or --num-kv-blocks, or lower --max-num-batched-tokens."
    )


def _wished_pool(
    settings: RunnerSettings, limits: StepLimits, allowed: AllowedMemory, taken: int, block_bytes: int
) -> PoolSize:
    if settings.num_kv_blocks is not None:
        return PoolSize(settings.num_kv_blocks, f"--num-kv-blocks {settings.num_kv_blocks}")
    if settings.kv_cache_memory is not None:
        blocks = settings.kv_cache_memory // block_bytes - 1
        return PoolSize(blocks, f"--kv-cache-memory ({format_bytes(settings.kv_cache_memory)})")
    budget = int(allowed.total * settings.share)
    share = f"--gpu-memory-utilization {settings.share:.2f} ({format_bytes(budget)} of {format_bytes(allowed.total)})"
    by_share = PoolSize((budget - taken) // block_bytes - 1, share)
    if settings.gpu_memory_utilization is not None:
        return by_share
    rows = limits.max_rows * -(-limits.max_model_len // BLOCK_SIZE)
    full = PoolSize(rows, f"{limits.max_rows} sequences of --max-model-len {limits.max_model_len}")
    there = PoolSize(
        (allowed.available - taken - RESERVE) // block_bytes - 1,
        f"available memory ({format_bytes(allowed.available)})",
    )
    return min(by_share, full, there, key=lambda size: size.num_blocks)
