"""The machine under a benchmark: what it is, and the two rates that bound a step."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from chairlift.core.work import ModelShape

_READ_BYTES = 256 << 20
"""For each thread: far beyond any cache."""
_MATRIX = 2048


@dataclass(frozen=True, slots=True)
class Machine:
    """As it says of itself."""

    cpu: str
    cores: int
    memory_gib: float
    python: str
    system: str

    def __str__(self) -> str:
        return f"{self.cpu}, {self.cores} cores, {self.memory_gib:.0f} GiB, {self.system}, Python {self.python}"


def describe() -> Machine:
    """This machine."""
    return Machine(
        cpu=_cpu_name(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
    )


def _cpu_name() -> str:
    facts: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    family, model = facts.get("cpu family", "?"), facts.get("model", "?")
    vectors = [
        name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in facts.get("flags", "").split()
    ]
    return f"{facts.get('model name', platform.machine())} (family {family}, model {model}; {', '.join(vectors)})"


@dataclass(frozen=True, slots=True)
class Rates:
    """What the machine did at best, of several tries."""

    read: float
    """Bytes a second from memory."""
    sgemm: float
    """f32 operations a second of a large matrix product, a multiply-add counting as two."""

    def __str__(self) -> str:
        return f"reads {self.read / 1e9:.1f} GB/s, sgemm {self.sgemm / 1e9:.0f} GFLOP/s"


class RateMeter:
    """Measures the rates with the given number of threads; keeps the best of all tries, since others disturb."""

    def __init__(self, threads: int) -> None:
        self._arrays = [np.ones(_READ_BYTES // 4, np.float32) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads)
        left = ops.parameter([_MATRIX, _MATRIX], np.float32)
        right = np.random.default_rng(0).standard_normal((_MATRIX, _MATRIX), np.float32)
        product = ops.matmul(left, ops.constant(right), transpose_a=False, transpose_b=False)
        options = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        compiled = ov.Core().compile_model(ov.Model([product], [left], "sgemm"), "CPU", options)
        self._request = compiled.create_infer_request()
        self._request.set_input_tensor(ov.Tensor(right))
        self._best = Rates(0.0, 0.0)

    def measure(self, tries: int = 3) -> Rates:
        """Try again; the best so far."""
        reads = [_seconds(lambda: list(self._pool.map(np.max, self._arrays))) for _ in range(tries)]
        products = [_seconds(self._request.infer) for _ in range(tries)]
        read = len(self._arrays) * _READ_BYTES / min(reads)
        sgemm = 2 * _MATRIX**3 / min(products)
        self._best = Rates(max(self._best.read, read), max(self._best.sgemm, sgemm))
        return self._best


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def decode_floor(rates: Rates, shape: ModelShape, rows: int) -> float:
    """Seconds that a step of so many decodes takes at least: its weights' bytes, or its matrix products."""
    flops = rows * (shape.linear_flops_per_token + shape.head_flops_per_sample)
    return max((shape.layer_weight_bytes + shape.head_weight_bytes) / rates.read, flops / rates.sgemm)


def prefill_floor(rates: Rates, shape: ModelShape, prompts: list[int]) -> float:
    """Seconds that prompts of these lengths take at least: their matrix products; attention is left out."""
    flops = sum(prompts) * shape.linear_flops_per_token + len(prompts) * shape.head_flops_per_sample
    return flops / rates.sgemm


def load_floor(rates: Rates, shape: ModelShape, lengths: list[tuple[int, int]]) -> float:
    """Seconds that (prompt, answer) pairs take at least, all there at once: first all prompts, then all decodes in as
    few steps as possible. Nothing overlaps: a step takes the longer of its bytes and its operations.
    """
    steps = max(answer for _, answer in lengths) - 1
    decodes = [sum(answer - 1 > step for _, answer in lengths) for step in range(steps)]
    prefill = prefill_floor(rates, shape, [prompt for prompt, _ in lengths])
    return prefill + sum(decode_floor(rates, shape, rows) for rows in decodes)
