from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chairlift.lab.client.devices import Gpus, Processor, local_devices
from chairlift.records.client import DeviceSample

MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\nHugePages_Total:       0\n"


class NVMLError(Exception):
    """As pynvml has it."""


class FakeNvml:
    """Pynvml on a machine with so many GPUs; calls named in `missing` fail, as in a partition of a GPU."""

    NVMLError = NVMLError

    def __init__(self, gpus: int = 2, *, driver: bool = True, missing: frozenset[str] = frozenset()) -> None:
        self._gpus, self._driver, self._missing = gpus, driver, missing

    def nvmlInit(self) -> None:  # noqa: N802 - the library's name, as those below
        if not self._driver:
            raise NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self._gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:  # noqa: N802
        return b"H100"

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return self._answer("utilization", SimpleNamespace(gpu=75 + handle, memory=10))

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return self._answer("memory", SimpleNamespace(used=30, total=80, free=50))

    def nvmlDeviceGetPowerUsage(self, handle: int) -> Any:  # noqa: N802
        return self._answer("power", 350_500)

    def _answer(self, what: str, answer: Any) -> Any:
        if what in self._missing:
            raise NVMLError("Not Supported")
        return answer


def test_every_gpu_tells_its_use_memory_and_power() -> None:
    """Percent become shares, milliwatts watts."""
    first, second = Gpus.found(FakeNvml()).read()  # type: ignore[union-attr]

    assert first == DeviceSample(0, "H100 0", "gpu", 0.75, 30, 80, 350.5)
    assert (second.device, second.utilization) == ("H100 1", 0.76)


def test_what_a_gpu_does_not_tell_is_unknown_and_not_zero() -> None:
    """In a partition neither utilisation nor power is to be had."""
    gpus = Gpus.found(FakeNvml(1, missing=frozenset({"utilization", "power"})))
    assert gpus is not None

    (sample,) = gpus.read()

    assert (sample.utilization, sample.power, sample.memory_used) == (None, None, 30)


@pytest.mark.parametrize("nvml", [FakeNvml(0), FakeNvml(driver=False)], ids=["no GPU", "no driver"])
def test_without_a_gpu_the_processor_tells(nvml: Any) -> None:
    """No GPU, or no driver: all cores together."""
    assert isinstance(local_devices(nvml), Processor)


def test_the_processor_is_busy_for_the_share_that_it_did_not_idle(tmp_path: Path) -> None:
    """Of 400 ticks since the last reading 250 were idle and 50 waited for a disk; 600 kB of 1,000 are not available."""
    stat, meminfo = tmp_path / "stat", tmp_path / "meminfo"
    meminfo.write_text(MEMINFO)
    stat.write_text("cpu  10 0 10 1000 5 0 0 0 0 0\ncpu0 1 1 1 1\n")
    processor = Processor(stat, meminfo)
    stat.write_text("cpu  90 0 30 1250 55 0 0 0 0 0\ncpu0 1 1 1 1\n")

    assert processor.read() == [DeviceSample(0, "processor", "cpu", 0.25, 600 * 1024, 1000 * 1024)]


def test_two_readings_within_a_tick_tell_no_utilisation(tmp_path: Path) -> None:
    """Nothing passed: a share of nothing is unknown."""
    stat, meminfo = tmp_path / "stat", tmp_path / "meminfo"
    stat.write_text("cpu  10 0 10 1000 5 0 0 0 0 0\n")

    (sample,) = Processor(stat, meminfo).read()

    assert (sample.utilization, sample.memory_used) == (None, None)


def test_a_system_without_proc_tells_nothing(tmp_path: Path) -> None:
    """No samples rather than invented ones."""
    assert Processor(tmp_path / "stat", tmp_path / "meminfo").read() == []
