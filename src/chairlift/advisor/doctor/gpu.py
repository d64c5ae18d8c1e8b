"""What a graphics processor says of itself: memory and utilisation, by NVML, or by a server's metrics.

NVML is asked through `pynvml` (the package nvidia-ml-py) where that is installed and there is a device; neither is
needed. Utilisation is NVML's: the share of the last sample period in which at least one kernel ran. It says nothing of
how well the device was used while it did.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

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
    """All devices of this machine; none where NVML is not there.

    Args:
        module: that talks to it.
    """
    try:
        nvml: Any = importlib.import_module(module)
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no module, no library, no driver, no device: whatever it is, nothing is known
        return ()
    found = []
    with contextlib.suppress(Exception):  # a device may vanish, or refuse to tell
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            name = nvml.nvmlDeviceGetName(handle)
            used: float | None = None
            with contextlib.suppress(Exception):  # not every device tells
                used = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            text = name.decode() if isinstance(name, bytes) else str(name)
            found.append(Gpu(text, int(memory.used), int(memory.total), used))
    with contextlib.suppress(Exception):
        nvml.nvmlShutdown()
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
