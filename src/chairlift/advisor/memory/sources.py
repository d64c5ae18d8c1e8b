"""Where a question's memory model comes from: a device model, this machine by what it has, or by loading the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from chairlift.advisor.memory.described import DescribedModel
from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import DeviceModelError
from chairlift.devices.analytic import analytic_model
from chairlift.devices.memory import MemoryModel
from chairlift.devices.model import DeviceModel
from chairlift.devices.registry import find_device_model, find_sheet
from chairlift.devices.sheet import DeviceSheet, cpu_sheet
from chairlift.devices.toml import load
from chairlift.runners.openvino.memory import MemoryReport, allowed_memory
from chairlift.runners.openvino.settings import RunnerSettings, StepLimits

CPU_BLOCK: Final = 32
"""Tokens of a block on this machine: the OpenVINO runner's."""


@dataclass(frozen=True, slots=True)
class Source:
    """A memory model, the device model it belongs to if there is one, and what is known of the device."""

    memory: MemoryModel
    device: DeviceModel | None
    name: str
    sheet: DeviceSheet | None
    """For other precisions and numbers of devices; None where those cannot be reckoned."""
    notes: tuple[str, ...] = ()


def of_device(
    model: DescribedModel, device: str, *, tensor_parallel: int = 1, weights: str | None = None, kv: str = "bf16"
) -> Source:
    """From a device sheet or a device model's file.

    Args:
        model: whose memory it is.
        device: a built-in device, a sheet's path, or a device model's path.
        tensor_parallel: devices that work as one.
        weights: how they are stored; None: as the model's file has them, or 16 bits.
        kv: precision of keys and values.

    Raises:
        DeviceModelError: device or precision is unknown, or they do not go together.
    """
    stored = model.stored if weights is None else None
    if device.endswith(".toml") and "step" in load(Path(device)):
        loaded = find_device_model(device, tensor_parallel=tensor_parallel)
        return Source(_memory_of(loaded), loaded, loaded.name, None)
    sheet = find_sheet(device)
    made = analytic_model(model.config, sheet, tensor_parallel=tensor_parallel, weights=weights or model.weights, kv=kv)
    memory = _memory_of(made)
    notes: tuple[str, ...] = ()
    if stored is not None:
        memory = replace(memory, weights=-(-stored // tensor_parallel))
        notes = (f"weights as stored in the file; step times as if they were {model.weights}",)
    return Source(memory, replace(made, memory=memory), made.name, sheet, notes)


def _memory_of(device: DeviceModel) -> MemoryModel:
    if device.memory is None:
        raise DeviceModelError(f"the device model {device.name} has no [memory]: nothing can be reckoned from it.")
    return device.memory


def of_this_machine(model: DescribedModel, *, wide: bool = False) -> Source:
    """From what this machine allows and an assumption about the runtime; nothing is loaded.

    Args:
        model: whose memory it is.
        wide: keep keys and values in 32 bits instead of 16.
    """
    allowed = allowed_memory()
    # Only its memory is used: of this machine's speed nothing is known before it is measured.
    sheet = cpu_sheet(memory=allowed.total, bandwidth=1.0, flops_f32=1.0, name="this machine")
    estimate = _memory_of(analytic_model(model.config, sheet, weights="bf16", kv="f32" if wide else "bf16"))
    memory = replace(
        estimate,
        weights=estimate.weights if model.stored is None else model.stored,
        # The CPU runner computes in f32, twice what the estimate's 16 bits take.
        activation_per_token=2 * estimate.activation_per_token,
    )
    note = "runtime and activations are assumed; --measure loads the model and measures them"
    return Source(memory, None, f"this machine/{model.config.name}", None, (note,))


def measured(path: Path, config: SchedulerConfig, settings: RunnerSettings) -> Source:
    """From loading the model, as a server does, and measuring.

    Raises:
        ChairliftError: as OpenVINORunner.
    """
    # Only this needs a device.
    from chairlift.engine.sampling import BatchSampler  # noqa: PLC0415
    from chairlift.runners.openvino.runner import OpenVINORunner  # noqa: PLC0415

    runner = OpenVINORunner(path, StepLimits.of(config), BatchSampler(), settings)
    try:
        report = runner.memory
    finally:
        runner.close()
    notes = (
        f"measured on this machine: activations of {report.largest_step}, whatever other steps are asked about",
        f"a server with these settings starts with {report.num_blocks:,} blocks, by {report.decided_by}",
    )
    return Source(from_report(report), None, f"this machine/{path.stem}", None, notes)


def from_report(report: MemoryReport) -> MemoryModel:
    """What a runner measured at its start, as a memory model: planning with it gives the runner's own pool."""
    return MemoryModel(
        capacity=report.allowed.total,
        weights=report.weights_and_runtime,
        runtime=report.before,
        kv_bytes_per_token=report.block_bytes // report.block_size,
        activation_fixed=report.activations,
    )
