import sys
from types import ModuleType, SimpleNamespace

import pytest

from chairlift.advisor.doctor.gpu import Gpu, of_series, read_nvml


def stand_in(**replaced: object) -> ModuleType:
    """A module that talks to two devices of 80 GiB, the second of which does not tell how busy it is."""

    def rates(handle: int) -> SimpleNamespace:
        if handle == 1:
            raise RuntimeError("not supported")
        return SimpleNamespace(gpu=37)

    module = ModuleType("stand_in_nvml")
    given: dict[str, object] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=(handle + 1) * 2**34, total=5 * 2**34),
        "nvmlDeviceGetName": lambda handle: b"device 0" if handle == 0 else "device 1",
        "nvmlDeviceGetUtilizationRates": rates,
    }
    for name, value in (given | replaced).items():
        setattr(module, name, value)
    return module


def test_memory_and_utilisation_of_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As NVML tells them; what a device does not tell is not known."""
    monkeypatch.setitem(sys.modules, "stand_in_nvml", stand_in())

    assert read_nvml("stand_in_nvml") == (
        Gpu("device 0", 2**34, 5 * 2**34, 0.37),
        Gpu("device 1", 2 * 2**34, 5 * 2**34, None),
    )
    assert read_nvml("stand_in_nvml")[1].memory == pytest.approx(0.4)


def test_without_nvml_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """No module, or no driver behind it."""

    def fails() -> None:
        raise OSError("no driver")

    monkeypatch.setitem(sys.modules, "stand_in_nvml", stand_in(nvmlInit=fails))

    assert read_nvml("no_such_module") == ()
    assert read_nvml("stand_in_nvml") == ()


def test_a_device_that_vanishes_ends_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before it are told."""

    def memory(handle: int) -> SimpleNamespace:
        if handle == 1:
            raise RuntimeError("gone")
        return SimpleNamespace(used=1, total=2)

    monkeypatch.setitem(sys.modules, "stand_in_nvml", stand_in(nvmlDeviceGetMemoryInfo=memory))

    assert [one.name for one in read_nvml("stand_in_nvml")] == ["device 0"]


def test_tritons_page_tells_of_its_devices() -> None:
    """By their id; one without memory is left out."""
    series = {
        'nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"}': 30.0,
        'nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"}': 40.0,
        'nv_gpu_utilization{gpu_uuid="GPU-1"}': 0.5,
        'nv_gpu_utilization{gpu_uuid="GPU-2"}': 0.5,
        "nv_inference_count": 3.0,
    }

    assert of_series(series) == (Gpu("GPU-1", 30, 40, 0.5),)
