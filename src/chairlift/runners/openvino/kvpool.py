"""The KV pool: one anonymous map, cut into a key and a value cache for each layer.

The pages are touched when the pool is made. Memory that the system has promised but not yet given would otherwise be
found missing in the middle of an answer, when the kernel ends the process without a word.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from chairlift.core.errors import OutOfDeviceMemory
from chairlift.runners.openvino.memory import MIB, allowed_memory, format_bytes

CHUNK = 256 * MIB
"""Bytes touched between two looks at what is available."""

RESERVE = 64 * MIB
"""Available memory below which touching stops: the rest of the system has to live."""

MADV_POPULATE_WRITE = 23
"""Linux 5.14 and later (madvise(2)): faults in a range in two thirds of the time that writing to each page takes."""

WAY_OUT = "Lower --gpu-memory-utilization, --kv-cache-memory or --num-kv-blocks (or free memory) and start again."


class KVPool:
    """Caches of all layers.

    Attributes:
        tensors: key_cache.0, value_cache.0, key_cache.1, …: each [blocks, kv_heads, block_size, head_dim].
    """

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        layers: int,
        element: type[np.generic],
        available: Callable[[], int] = lambda: allowed_memory().available,
    ) -> None:
        """Reserve and touch the memory.

        Args:
            shape: of one cache.
            layers: how many pairs of caches.
            element: numpy type of a cache's elements.
            available: bytes that could be taken now.

        Raises:
            OutOfDeviceMemory: it does not fit; nothing is kept.
        """
        cache_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(element).itemsize
        stride = -(-cache_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        size = 2 * layers * stride
        if size + RESERVE > (left := available()):
            raise OutOfDeviceMemory(
                f"the KV pool of {format_bytes(size)} does not fit: {format_bytes(left)} are available, of which "
                f"{format_bytes(RESERVE)} stay free. {WAY_OUT}"
            )
        try:
            # Private, not Python's default of shared: its pages come nearly twice as fast.
            self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise OutOfDeviceMemory(
                f"the system refuses {format_bytes(size)} for the KV pool ({error}). {WAY_OUT}"
            ) from error
        memory = np.frombuffer(self._map, np.uint8)
        _touch(self._map, memory, available)
        views = (memory[i * stride : i * stride + cache_bytes].view(element).reshape(shape) for i in range(2 * layers))
        names = (f"{role}_cache.{layer}" for layer in range(layers) for role in ("key", "value"))
        self.tensors = {name: ov.Tensor(view, shared_memory=True) for name, view in zip(names, views, strict=True)}


def _touch(mapped: mmap.mmap, memory: NDArray[np.uint8], available: Callable[[], int]) -> None:
    """Have every page really there; fresh pages hold zeros."""
    for start in range(0, len(memory), CHUNK):
        chunk = memory[start : start + CHUNK]
        if len(chunk) + RESERVE > (left := available()):
            raise OutOfDeviceMemory(
                f"memory ran short while the KV pool of {format_bytes(len(memory))} was taken: {format_bytes(start)} "
                f"are there, {format_bytes(left)} are available for the rest. {WAY_OUT}"
            )
        try:
            mapped.madvise(MADV_POPULATE_WRITE, start, len(chunk))
        except (OSError, ValueError):  # an older kernel, or another system
            chunk[:: mmap.PAGESIZE] = 0
