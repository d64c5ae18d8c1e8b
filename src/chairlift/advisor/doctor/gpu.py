"""What a graphics processor says of itself: memory and utilisation, by NVML, or by a server's metrics.

NVML is asked through `pynvml` (the package nvidia-ml-py) where that is installed and there is a device; neither is
needed. Utilisation is NVML's: the share of the last sample period in which at least one kernel ran. It says nothing of
how well the device was used while it did.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chairlift.lab.client.devices import Gpus, nvml_module

_UUID: Final = re.compile(r'gpu_uuid="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device at one moment."""

    name: str
    memory_used: int
    """Bytes, by all processes."""
    memory_total: int
    utilization: float | None
    """Share of time in which a kernel ran; None: not told."""

    @property
    def memory(self) -> float:
        """Share of the memory in use."""
        return self.memory_used / self.memory_total if self.memory_total else 0.0


def read_nvml(module: str = "pynvml") -> tuple[Gpu, ...]:
    """All devices of this machine, up to the first that does not tell its memory; none where NVML is not there.

    Args:
        module: that talks to it.
    """
    gpus = Gpus.found(nvml_module(module))
    if gpus is None:
        return ()
    samples = gpus.read()
    gpus.close()
    found = []
    for name, sample in zip(gpus.names, samples, strict=True):
        if sample.memory_used is None or sample.memory_total is None:
            break  # it has vanished
        found.append(Gpu(name, sample.memory_used, sample.memory_total, sample.utilization))
    return tuple(found)


def of_series(series: Mapping[str, float]) -> tuple[Gpu, ...]:
    """From Triton's metrics page."""
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for key, value in series.items():
        name = key.partition("{")[0]
        if name.startswith("nv_gpu_") and (uuid := _UUID.search(key)):
            values[uuid[1]][name] = value
    return tuple(
        Gpu(
            uuid,
            int(one["nv_gpu_memory_used_bytes"]),
            int(one["nv_gpu_memory_total_bytes"]),
            one.get("nv_gpu_utilization"),
        )
        for uuid, one in sorted(values.items())
        if {"nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes"} <= one.keys()
    )
