"""How far analytic device models are from measurements: a measured table beside the models of the same devices.

    python -m chairlift.devices.against_table perf_model.csv

Every group of the table whose hardware and model are built in is compared, decode and prefill apart. Tables measured
with software that launches every kernel from the host show a decode time that no further device makes shorter;
`--launches` takes that time a layer from the widest group's decodes of batch 1 and compares the other groups with it,
so that what the sheets say of the devices is seen apart from what the software lost.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chairlift.core.errors import DeviceModelError
from chairlift.devices.analytic import analytic_model
from chairlift.devices.model import DeviceModel
from chairlift.devices.registry import ALIASES, device_names, find_config, find_sheet, model_names
from chairlift.devices.samples import Sample
from chairlift.devices.table import Group, MeasuredGroup, MeasuredTable, read_table


@dataclass(frozen=True, slots=True)
class Comparison:
    """One phase of one group: analytic over measured."""

    group: Group
    phase: str
    errors: tuple[float, ...]
    """Signed relative errors, one for each sample: -0.3 is a prediction 30% too fast."""

    @property
    def mape(self) -> float:
        return statistics.fmean(abs(error) for error in self.errors)

    @property
    def median(self) -> float:
        """Signed: below 0 the model is too fast."""
        return statistics.median(self.errors)

    @property
    def span(self) -> tuple[float, float]:
        return min(self.errors), max(self.errors)


def compare(table: MeasuredTable, *, launches: bool = False) -> list[Comparison]:
    """Every group whose hardware and model are built in.

    Args:
        table: what was measured.
        launches: take the host's launches from the table, and leave out the groups that they come from, and those
            that have no wider one.

    Raises:
        DeviceModelError: the table has no such group.
    """
    sources = _widest(table) if launches else {}
    found: list[Comparison] = []
    for group in table.groups:
        widest = sources.get((group.hardware, group.model))
        if not launches or (widest is not None and group != widest):
            found += _compare_group(table, group, table.groups[widest] if widest else None)
    if not found:
        raise DeviceModelError(
            f"{table.source} has no group that is built in; devices are {', '.join(device_names())}, models "
            f"{', '.join(model_names())}."
        )
    return found


def _widest(table: MeasuredTable) -> dict[tuple[str, str], Group]:
    """(hardware, model) -> its group over most devices, where there is more than one."""
    found: dict[tuple[str, str], list[Group]] = {}
    for group in table.groups:
        found.setdefault((group.hardware, group.model), []).append(group)
    return {
        key: max(groups, key=lambda group: group.tensor_parallel) for key, groups in found.items() if len(groups) > 1
    }


def _compare_group(table: MeasuredTable, group: Group, widest: MeasuredGroup | None) -> Iterator[Comparison]:
    hardware, model = (ALIASES.get(name.lower(), name.lower()) for name in (group.hardware, group.model))
    if hardware not in device_names() or model not in model_names():
        return
    sheet, config = find_sheet(hardware), find_config(model)
    if widest is not None:
        alone = [sample.median for sample in widest.decode_samples if sample.shape.rows == 1]
        seconds = statistics.median(alone) * 1e-9 / config.num_layers
        sheet = sheet.with_figures(f"decodes of batch 1, {widest.group}", layer_launch=seconds)
    analytic = analytic_model(config, sheet, tensor_parallel=group.tensor_parallel)
    measured = table.groups[group]
    for phase, samples in (("decode", measured.decode_samples), ("prefill", measured.prefill_samples)):
        yield Comparison(group, phase, tuple(_error(analytic, sample) for sample in samples))


def _error(model: DeviceModel, sample: Sample) -> float:
    return model.time(sample.shape) / sample.median - 1


def lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """A table in Markdown, and the error over everything."""
    yield "| model | hardware | TP | phase | steps | MAPE | median error | from | to |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for one in comparisons:
        low, high = one.span
        group = one.group
        yield (
            f"| {group.model} | {group.hardware} | {group.tensor_parallel} | {one.phase} | {len(one.errors)} "
            f"| {one.mape:.0%} | {one.median:+.0%} | {low:+.0%} | {high:+.0%} |"
        )
    for phase in ("decode", "prefill"):
        errors = [error for one in comparisons if one.phase == phase for error in one.errors]
        yield f"| all | | | {phase} | {len(errors)} | {statistics.fmean(map(abs, errors)):.0%} | | | |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison; 0 when that worked, 2 when it could not run."""
    parser = argparse.ArgumentParser(prog="python -m chairlift.devices.against_table", description=__doc__)
    parser.add_argument("table", type=Path, help="CSV file with the columns of splitwise-sim's perf_model.csv")
    parser.add_argument(
        "--launches", action="store_true", help="take the time of the host's launches from the widest groups"
    )
    options = parser.parse_args(arguments)
    try:
        for line in lines(compare(read_table(options.table), launches=options.launches)):
            sys.stdout.write(line + "\n")
    except DeviceModelError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
