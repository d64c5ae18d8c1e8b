"""Measures the running machine and makes a device model of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from chairlift import __version__
from chairlift.core.request import Nanoseconds
from chairlift.core.work import ModelShape
from chairlift.devices.fit import Fit, fit_host, fit_step
from chairlift.devices.fit_curve import SHARP, SMOOTH, fit_curve
from chairlift.devices.memory import MemoryModel
from chairlift.devices.model import DeviceModel, Provenance
from chairlift.devices.quantities import Femtoseconds, femtoseconds
from chairlift.devices.samples import Sample
from chairlift.devices.valid import ValidRange
from chairlift.engine.loader import LoadedModel
from chairlift.lab.calibration.host import measure_host
from chairlift.lab.calibration.measure import ROUNDS, Measured, measure
from chairlift.lab.calibration.probes import JITTER, ProbeLimits, probes
from chairlift.lab.calibration.steps import StepTimer
from chairlift.records.manifest import machine, versions
from chairlift.runners.openvino.memory import MemoryReport
from chairlift.runners.openvino.runner import OpenVINORunner

_LOGIT_BYTES: Final = 4
_LISTED: Final = 12
"""Samples whose repeats disagree that are named in a file; the others are counted."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A device model, and all that it was made from."""

    model: DeviceModel
    form: str
    """How matrix products are described: the name of one of the fits."""
    fits: dict[str, Fit]
    """Every form that was tried."""
    measured: Measured
    host: tuple[tuple[int, Nanoseconds], ...]
    """(rows, host time) of steps."""

    @property
    def fit(self) -> Fit:
        """The one that was taken."""
        return self.fits[self.form]


async def calibrate(
    loaded: LoadedModel,
    *,
    rounds: int = ROUNDS,
    seed: int = 0,
    show: Callable[[int, int], None] | None = None,
) -> Calibration:
    """Measure the steps of a loaded model up to the largest that its settings permit, and the host; fit; describe.

    The engine is shut down at the end, and the model with it.

    Args:
        loaded: the model; nobody else may use it.
        rounds: repeats of each step.
        seed: of the order.
        show: is told how many steps of how many were made.

    Raises:
        ConfigError: the pool holds none of the steps.
        StepFailed: the device failed.
    """
    wanted = probes(limits_of(loaded))
    measured = measure(timer_of(loaded), wanted, rounds=rounds, seed=seed, show=show)
    return await finish(loaded, measured)


def limits_of(loaded: LoadedModel) -> ProbeLimits:
    """The largest step that a model's settings permit."""
    config = loaded.scheduler
    rows = max(config.max_num_seqs, config.batch_size, config.max_batch_size)
    return ProbeLimits(config.max_num_batched_tokens, min(rows, config.max_num_batched_tokens), config.max_model_len)


def timer_of(loaded: LoadedModel) -> StepTimer:
    """Measures on the model's own runner."""
    return StepTimer(loaded.runner, loaded.sampler, limits_of(loaded).rows)


async def finish(loaded: LoadedModel, measured: Measured) -> Calibration:
    """Measure the host, shut the engine down, fit, describe."""
    limits, config = limits_of(loaded), loaded.scheduler
    memory = loaded.runner.memory if isinstance(loaded.runner, OpenVINORunner) else None
    shape = loaded.runner.shape()
    counts = sorted({1, 2, limits.rows // 4, limits.rows // 2, limits.rows} - {0})
    host = await measure_host(loaded, [count for count in counts if count <= config.max_num_seqs])
    return describe(loaded.name, measured, host, shape=shape, memory=_memory(memory, shape, limits))


def describe(
    name: str,
    measured: Measured,
    host: Sequence[tuple[int, Nanoseconds]],
    *,
    shape: ModelShape | None,
    memory: MemoryModel | None,
) -> Calibration:
    """A device model from what was measured: of the forms, the one that predicts best what it has not seen."""
    fits = fit_forms(measured.samples)
    form = min(fits, key=lambda one: fits[one].errors["all"].left_out)
    fit = fits[form]
    about = machine()
    processor = f"{about['processor']}, {about['cpus']} CPUs, {about['memory']}, {about['system']}"
    repeats = len(measured.samples[0].times)
    notes = [
        f"{len(measured.samples)} different steps, {repeats} repeats each, by their medians; matrix products as {form}",
        *fit.outliers,
        *fit.noisy[:_LISTED],
    ]
    if len(fit.noisy) > _LISTED:
        notes.append(f"{len(fit.noisy) - _LISTED} more steps whose repeats spread.")
    model = DeviceModel(
        device="this machine",
        model=name,
        tensor_parallel=1,
        provenance=Provenance(
            kind="calibrated",
            machine=processor,
            date=datetime.now(UTC).date().isoformat(),
            versions={"chairlift": __version__} | versions(("openvino",)),
            errors=fit.left_out_errors,
            notes=tuple(notes),
        ),
        step=replace(fit.step, settling=_settling(measured)),
        host=fit_host(host),
        valid=_range(measured.samples),
        memory=memory,
        shape=shape,
    )
    return Calibration(model, form, fits, measured, tuple(host))


def fit_forms(samples: Sequence[Sample]) -> dict[str, Fit]:
    """Matrix products as a floor and a line, as a curve, and as a curve without corners.

    Raises:
        DeviceModelError: too few samples.
    """
    line = fit_step(samples)
    return {
        "floor and line": line,
        "curve": fit_curve(line.kept, line.outliers, smooth=SHARP),
        "smooth curve": fit_curve(line.kept, line.outliers, smooth=SMOOTH),
    }


def _settling(measured: Measured) -> Femtoseconds:
    """By the median; a device that has nothing of the kind shows as much less as more."""
    return max(0, femtoseconds(statistics.median(measured.settling) * 1e-9)) if measured.settling else 0


def _range(samples: Sequence[Sample]) -> ValidRange:
    """The largest of everything that was measured; of prompts, with the tokens that some repeats had more."""

    def most(name: str) -> int:
        return max(int(getattr(sample.shape, name)) for sample in samples)

    return ValidRange(most("tokens") + JITTER, most("rows"), most("longest"), most("context"))


def _memory(report: MemoryReport | None, shape: ModelShape | None, limits: ProbeLimits) -> MemoryModel | None:
    """The runner's own report as a device's memory: logits by their size, the rest of the activations by tokens."""
    if report is None or shape is None:
        return None
    rows = min(limits.rows, limits.tokens)
    logits = _LOGIT_BYTES * shape.vocab_size
    return MemoryModel(
        capacity=report.allowed.total,
        weights=report.weights_and_runtime,
        runtime=report.before,
        unseen=max(0, report.allowed.total - report.allowed.available - report.before),
        kv_bytes_per_token=report.block_bytes // report.block_size,
        activation_per_token=max(0, report.activations - rows * logits) // limits.tokens,
        activation_per_logits=logits,
    )
