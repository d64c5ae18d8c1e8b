"""From a measured table to device models: what `calibrate --table` prints and writes.

Each phase is fitted by the simplest line that has a reason (decode a + b x batch, prefill max(floor, slope x tokens)),
for people to read; the device model is made of a fit of both phases together, as formula or as a table over tokens,
whichever predicts better what it did not see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chairlift.core.errors import DeviceModelError
from chairlift.devices.fit import Fit, fit_step, tabulate
from chairlift.devices.memory import MemoryModel
from chairlift.devices.model import DeviceModel, HostTerms, Provenance
from chairlift.devices.samples import Sample
from chairlift.devices.table import MeasuredGroup
from chairlift.devices.valid import ValidRange

KIND = "fitted to a table"


@dataclass(frozen=True, slots=True)
class GroupFit:
    """The fits of one group."""

    group: MeasuredGroup
    decode: Fit
    """a + b x batch: `floor` and `per_sequence`."""
    prefill: Fit
    """max(floor, slope x tokens): `prompt_floor` and `per_token`."""
    formula: Fit
    """All coefficients from both phases."""
    tabulated: Fit
    """The same with a table over tokens in place of floor and line."""

    @property
    def better(self) -> Fit:
        """Of the last two, the one with the smaller leave-one-out error."""
        return min(self.formula, self.tabulated, key=lambda fit: fit.errors["all"].left_out)

    def model(self, *, source: str, date: str = "", memory: MemoryModel | None = None) -> DeviceModel:
        """The device model of this group.

        Args:
            source: the table's name and origin, for the provenance.
            date: of the fit, ISO 8601.
            memory: where known from elsewhere (tables have none): a device sheet and the model's config, say.
        """
        group = self.group.group
        samples = [*self.group.decode_samples, *self.group.prefill_samples]
        return DeviceModel(
            device=group.hardware,
            model=group.model,
            tensor_parallel=group.tensor_parallel,
            provenance=Provenance(
                kind=KIND,
                machine=group.hardware,
                date=date,
                errors=self.better.left_out_errors,
                notes=(f"source: {source}", *self.group.findings, *self.better.outliers, *self.better.noisy),
            ),
            step=self.better.step,
            # A table's times are whole steps as their software ran them: the host's share is inside.
            host=HostTerms(),
            valid=ValidRange(
                tokens=_most(samples, "tokens"),
                rows=_most(samples, "rows"),
                context=_most(samples, "longest"),
                total_context=_most(samples, "context"),
            ),
            memory=memory,
        )


def fit_group(group: MeasuredGroup) -> GroupFit:
    """Fit one group of a table.

    Raises:
        DeviceModelError: too few experiments are left of it.
    """
    decode, prefill = group.decode_samples, group.prefill_samples
    if min(len(decode), len(prefill)) < 3:
        raise DeviceModelError(
            f"{group.group}: {len(decode)} decode and {len(prefill)} prefill steps are too few for a fit; 3 of each "
            "are the least."
        )
    formula = fit_step([*decode, *prefill])
    return GroupFit(
        group=group,
        decode=fit_step(decode, fitted=("floor", "per_sequence")),
        prefill=fit_step(prefill, fitted=("prompt_floor", "per_token")),
        formula=formula,
        tabulated=tabulate(formula, formula.kept),
    )


def _most(samples: Sequence[Sample], size: str) -> int:
    return max(1, *(int(getattr(sample.shape, size)) for sample in samples))
