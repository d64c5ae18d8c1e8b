"""What the machine that the client runs on says of its devices: NVIDIA GPUs by NVML, otherwise its processor.

Where the server runs elsewhere these are not the server's devices, and say only how the client was.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from chairlift.records.client import DeviceSample

STAT, MEMINFO = Path("/proc/stat"), Path("/proc/meminfo")


class Devices(Protocol):
    """Something whose load can be read now and then."""

    def read(self) -> Sequence[DeviceSample]:
        """One sample for each device, with a time of 0: the caller knows the clock. Empty where nothing is told."""


def local_devices(nvml: ModuleType | None = None) -> Devices:
    """This machine's GPUs where NVML finds any, its processor otherwise.

    Args:
        nvml: the module pynvml; by default it is looked for (the package nvidia-ml-py, in chairlift[lab]).
    """
    return Gpus.found(nvml or nvml_module()) or Processor()


class Gpus:
    """NVIDIA GPUs.

    Args:
        nvml: pynvml, initialised.
        handles: of the GPUs.

    Attributes:
        names: of the GPUs; equal ones have equal names.
    """

    def __init__(self, nvml: Any, handles: Sequence[Any]) -> None:
        self._nvml = nvml
        self._handles = handles
        self.names = [_text(nvml.nvmlDeviceGetName(handle)) for handle in handles]

    @classmethod
    def found(cls, nvml: Any | None) -> Gpus | None:
        """Those of this machine; None where there are none, no driver or no library."""
        if nvml is None:
            return None
        try:
            nvml.nvmlInit()
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            return cls(nvml, handles) if handles else None
        except Exception:  # noqa: BLE001 - bindings and drivers have errors of many kinds
            return None

    def close(self) -> None:
        """Let go of the driver."""
        with suppress(Exception):
            self._nvml.nvmlShutdown()

    def read(self) -> list[DeviceSample]:
        """Utilisation as NVML has it: the share of its last sampling period in which any kernel ran, which says nothing
        of how much of the device that kernel used.
        """
        return [self._sample(index, handle) for index, handle in enumerate(self._handles)]

    def _sample(self, index: int, handle: Any) -> DeviceSample:
        busy = self._ask("nvmlDeviceGetUtilizationRates", handle)
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        power = self._ask("nvmlDeviceGetPowerUsage", handle)
        return DeviceSample(
            time=0,
            device=f"{self.names[index]} {index}",
            kind="gpu",
            utilization=None if busy is None else busy.gpu / 100,
            memory_used=None if memory is None else int(memory.used),
            memory_total=None if memory is None else int(memory.total),
            power=None if power is None else power / 1000,
        )

    def _ask(self, name: str, handle: Any) -> Any | None:
        """Not every device answers everything: in a partition (MIG) there is no utilisation, for one."""
        try:
            return getattr(self._nvml, name)(handle)
        except Exception:  # noqa: BLE001 - a device may vanish, too
            return None


class Processor:
    """All cores of a Linux machine together.

    Args:
        stat: /proc/stat.
        meminfo: /proc/meminfo.
    """

    def __init__(self, stat: Path = STAT, meminfo: Path = MEMINFO) -> None:
        self._stat, self._meminfo = stat, meminfo
        self._before = self._ticks()

    def read(self) -> list[DeviceSample]:
        """Utilisation: the share of all cores' time since the last reading that was not idle and not waiting for a disk
        (proc_stat(5)); memory in use: what is not available to new programs (proc_meminfo(5)).
        """
        now, before = self._ticks(), self._before
        self._before = now
        if now is None:
            return []
        passed = None if before is None else now[1] - before[1]
        memory = self._memory()
        total, available = memory.get("MemTotal"), memory.get("MemAvailable")
        return [
            DeviceSample(
                time=0,
                device="processor",
                kind="cpu",
                utilization=None if before is None or not passed else (now[0] - before[0]) / passed,
                memory_used=None if total is None or available is None else total - available,
                memory_total=total,
            )
        ]

    def _ticks(self) -> tuple[int, int] | None:
        """Busy ticks and all ticks since the machine started; None where the system does not tell."""
        try:
            with self._stat.open(encoding="ascii") as lines:
                # user nice system idle iowait irq softirq steal; guests are counted in user already
                ticks = [int(word) for word in lines.readline().split()[1:9]]
        except (OSError, ValueError):
            return None
        return (sum(ticks) - sum(ticks[3:5]), sum(ticks)) if len(ticks) > 4 else None

    def _memory(self) -> dict[str, int]:
        try:
            lines = self._meminfo.read_text(encoding="ascii").splitlines()
            return {name: int(value.split()[0]) * 1024 for name, _, value in (line.partition(":") for line in lines)}
        except (OSError, ValueError, IndexError):
            return {}


def nvml_module(name: str = "pynvml") -> ModuleType | None:
    """The module that talks to NVML; None where it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        return None


def _text(name: str | bytes) -> str:
    """Older bindings give bytes."""
    return name.decode() if isinstance(name, bytes) else name
