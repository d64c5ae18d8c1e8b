"""From a measured table to device models: what `calibrate --table` prints and writes.

Each phase is fitted by the simplest line that has a reason (decode a + b x batch, prefill max(floor, slope x tokens)),
for people to read; the device model is made of a fit of both phases together, as formula or as a table over tokens,
whichever predicts better what it did not see.

    python -m chairlift.devices.from_table perf_model.csv

prints what is wrong with a table and how well each group is met.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chairlift.core.errors import DeviceModelError
from chairlift.devices.fit import Fit, fit_step, tabulate
from chairlift.devices.memory import MemoryModel
from chairlift.devices.model import DeviceModel, HostTerms, Provenance
from chairlift.devices.samples import Sample
from chairlift.devices.table import MeasuredGroup, MeasuredTable, read_table
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


def lines(table: MeasuredTable) -> Iterator[str]:
    """Findings, and a table in Markdown: for each fit MAPE and leave-one-out MAPE."""
    findings = [*table.findings, *(finding for group in table.groups.values() for finding in group.findings)]
    yield from (f"- {finding}" for finding in findings)
    yield ""
    yield "| group | decode a + b x batch | prefill max(floor, slope x tokens) | both: formula | both: table |"
    yield "|---|---|---|---|---|"
    for group in table.groups.values():
        fit = fit_group(group)
        cells = (_cell(one) for one in (fit.decode, fit.prefill, fit.formula, fit.tabulated))
        yield f"| {group.group} | {' | '.join(cells)} |"


def _cell(fit: Fit) -> str:
    error = fit.errors["all"]
    return f"{error.mape:.1%} ({error.left_out:.1%})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the fits; 0 when that worked, 2 when it could not run."""
    parser = argparse.ArgumentParser(prog="python -m chairlift.devices.from_table", description=__doc__)
    parser.add_argument("table", type=Path, help="CSV file with the columns of splitwise-sim's perf_model.csv")
    try:
        for line in lines(read_table(parser.parse_args(arguments).table)):
            sys.stdout.write(line + "\n")
    except DeviceModelError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
