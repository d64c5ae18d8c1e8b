"""What a change should do: the run's load on a device model, before and after it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

from chairlift.advisor.doctor.case import Case
from chairlift.advisor.doctor.diagnose import Diagnosis
from chairlift.advisor.doctor.finding import Change, Finding, seconds
from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ChairliftError, OutOfDeviceMemory
from chairlift.devices.model import DeviceModel
from chairlift.devices.quantities import read_time
from chairlift.devices.registry import find_device_model
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.simulation import simulate_load
from chairlift.records.client_summary import Summary, summarize
from chairlift.runners.simulated import SimulatorSettings

_DURATIONS: Final = ("max_wait", "max_queue_delay", "target_itl")
_TRIED: Final = 3
"""Findings whose changes are tried, the first ones."""


def with_effects(diagnosis: Diagnosis, device: str) -> Diagnosis:
    """The same, with what each of the first changes should do.

    Args:
        diagnosis: of a run whose load and settings are known; of another nothing is changed.
        device: a device model by name or path.

    Raises:
        DeviceModelError: there is no such device model.
    """
    model = find_device_model(device)
    found, tried = [], 0
    for one in diagnosis.findings:
        better = None
        if not one.note and one.changes and tried < _TRIED:
            better = effect(diagnosis.case, one, model)
            tried += better is not None
        found.append(better or one)
    return replace(diagnosis, findings=tuple(found))


def effect(case: Case, finding: Finding, model: DeviceModel) -> Finding | None:
    """The finding with figures before and after its changes; None where they cannot be tried.

    Of changes each of which would do, the one that gives most comes first; one that gives less than before is left out.
    """
    if case.schedule is None or case.config is None:
        return None
    size = case.capacity.block_size if case.capacity is not None else 16
    blocks = _pool(case, model, size)
    groups = [(one,) for one in finding.changes] if finding.either else [finding.changes]
    try:
        old = _run(case.schedule, case.config, model, blocks, size)
        tried = []
        for group in groups:
            after = next((int(one.after) for one in group if one.setting == "num_kv_blocks"), blocks)
            tried.append((_run(case.schedule, changed(case.config, group), model, after, size), group))
    except (ChairliftError, ValueError, TypeError):
        return None
    tried.sort(key=lambda one: _merit(one[0]), reverse=True)
    kept = [(new, group) for new, group in tried if _merit(new) >= _merit(old)] or tried[:1]
    return replace(
        finding,
        changes=tuple(change for _, group in kept for change in group),
        simulated=_beside(old, kept[0][0]),
    )


def _pool(case: Case, model: DeviceModel, size: int) -> int | None:
    """The run's own KV pool; None, which is the device's, where the device is too small for that."""
    if case.capacity is None or case.config is None:
        return None
    settings = SimulatorSettings(num_kv_blocks=case.capacity.num_blocks, block_size=size)
    try:
        settings.runner(model, case.config)
    except OutOfDeviceMemory:
        return None
    return case.capacity.num_blocks


def _merit(summary: Summary) -> tuple[float, float]:
    """Tokens a second to three digits, then the sooner end."""
    rate = next(one for one in summary.rates if one.name == "output_tokens_per_second")
    whole = next(one for one in summary.distributions if one.metric.name == "end_to_end_from_schedule")
    return float(f"{rate.value or 0.0:.3g}"), -(whole.mean or 0.0)


def changed(config: SchedulerConfig, changes: tuple[Change, ...]) -> SchedulerConfig:
    """The settings with the changes that are the scheduler's; the budget follows when more rows need it.

    Raises:
        ConfigError: they do not go together.
    """
    names = {one.name for one in fields(SchedulerConfig)}
    values = {one.setting: _value(one) for one in changes if one.setting in names}
    if not values and not any(one.setting == "num_kv_blocks" for one in changes):
        raise ValueError("nothing of this can be simulated")
    most = max((int(values.get(name, 0)) for name in ("max_num_seqs", "batch_size", "max_batch_size")), default=0)
    if most > values.get("max_num_batched_tokens", config.max_num_batched_tokens):
        values["max_num_batched_tokens"] = most
    if values.get("policy") == "continuous":
        # What was set for closed batches does not go with it.
        values |= {"padding": None, "release": None}
    return replace(config, **values)


def _value(change: Change) -> Any:
    if change.setting in _DURATIONS and isinstance(change.after, str):
        return read_time(change.after) // 10**6
    return change.after


def _run(schedule: Schedule, config: SchedulerConfig, model: DeviceModel, blocks: int | None, size: int) -> Summary:
    settings = SimulatorSettings(num_kv_blocks=blocks, block_size=size, outside_range="warn")
    return summarize(simulate_load(schedule, model, config, settings=settings).traces)


def _beside(old: Summary, new: Summary) -> dict[str, tuple[str, str]]:
    found = {}
    for name, unit in (("output_tokens_per_second", "tokens/s"),):
        before, after = (next(rate for rate in one.rates if rate.name == name) for one in (old, new))
        if before.value is not None and after.value is not None:
            found[name] = (f"{before.value:,.0f} {unit}", f"{after.value:,.0f} {unit}")
    for metric, which in (("ttft_from_schedule", 99), ("time_between_tokens", 99), ("end_to_end_from_schedule", 0)):
        one, other = (next(d for d in s.distributions if d.metric.name == metric) for s in (old, new))
        if one.mean is None or other.mean is None or not (one.observable and other.observable):
            continue
        values = (one.percentiles[99], other.percentiles[99]) if which else (one.mean, other.mean)
        label = f"{metric} {'p99' if which else 'mean'}"
        found[label] = (seconds(values[0]), seconds(values[1]))
    return found
