"""Measured tables as others publish them: read, looked over for rows that cannot be, and fitted.

The columns of splitwise-sim's perf_model.csv (github.com/Mutinifni/splitwise-sim, MIT; P. Patel et al., Splitwise,
arXiv 2311.18677) are the default: model, hardware, tensor_parallel, prompt_size, batch_size, token_size, prompt_time
and token_time, both in milliseconds: how long one step takes that computes batch_size prompts of prompt_size tokens,
and the mean of the steps that generate token_size tokens after it.

Looked for are rows that occur twice, rows that cannot be read, larger prefills that are faster than smaller ones by
more than noise, and groups that are another group times a constant.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from chairlift.core.errors import DeviceModelError
from chairlift.devices.quantities import show_time
from chairlift.devices.samples import Sample
from chairlift.devices.shape import StepShape

_FASTER: Final = 0.7
"""A prefill of more tokens that takes less than this share of a smaller one's time is broken: noise is far smaller."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column holds what. Times in the unit given."""

    model: str = "model"
    hardware: str = "hardware"
    tensor_parallel: str = "tensor_parallel"
    prompt: str = "prompt_size"
    batch: str = "batch_size"
    output: str = "token_size"
    prefill: str = "prompt_time"
    decode: str = "token_time"
    nanoseconds: float = 1e6
    """In the unit of both times."""


class Group(NamedTuple):
    """What was measured: rows of one group are fitted together."""

    model: str
    hardware: str
    tensor_parallel: int

    def __str__(self) -> str:
        return f"{self.model} on {self.hardware}, tensor parallel {self.tensor_parallel}"


class Setting(NamedTuple):
    """One experiment of a group."""

    prompt: int
    batch: int
    output: int

    @property
    def tokens(self) -> int:
        """Of the prefill."""
        return self.prompt * self.batch

    def __str__(self) -> str:
        return f"prompt {self.prompt}, batch {self.batch}, output {self.output}"


@dataclass(frozen=True, slots=True)
class Times:
    """Repeats of one experiment, nanoseconds."""

    prefill: tuple[int, ...]
    decode: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MeasuredGroup:
    """One group's experiments, the broken ones left out."""

    group: Group
    times: Mapping[Setting, Times]
    findings: tuple[str, ...]
    """One sentence for each thing that is wrong, or odd, with the rows and the reason."""

    @property
    def decode_samples(self) -> list[Sample]:
        """Steps of `batch` decodes in the middle of their answers."""
        return [
            Sample(StepShape.decode(s.batch, s.prompt + s.output // 2), times.decode, "decode", f"{self.group}, {s}")
            for s, times in sorted(self.times.items())
        ]

    @property
    def prefill_samples(self) -> list[Sample]:
        """Steps of `batch` prompts; experiments that differ in output alone repeat the same step."""
        repeats: dict[tuple[int, int], list[int]] = {}
        for setting, times in sorted(self.times.items()):
            repeats.setdefault((setting.prompt, setting.batch), []).extend(times.prefill)
        return [
            Sample(
                StepShape.prefill(batch, prompt),
                tuple(times),
                "prefill",
                f"{self.group}, prompt {prompt}, batch {batch}",
            )
            for (prompt, batch), times in repeats.items()
        ]


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """All groups of a table."""

    source: str
    groups: Mapping[Group, MeasuredGroup]
    findings: tuple[str, ...]
    """About the table as a whole."""

    def group(self, model: str, hardware: str, tensor_parallel: int) -> MeasuredGroup:
        """One group. Raises DeviceModelError when the table has none such."""
        wanted = Group(model, hardware, tensor_parallel)
        if wanted not in self.groups:
            known = "; ".join(str(group) for group in self.groups)
            raise DeviceModelError(f"{self.source} has nothing for {wanted}; it has: {known}.")
        return self.groups[wanted]


def read_table(path: Path, columns: Columns | None = None) -> MeasuredTable:
    """Read a CSV file with a header line.

    Raises:
        DeviceModelError: it cannot be read, or a column is missing.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return measured_table(csv.DictReader(file), str(path), columns)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DeviceModelError(f"{path} cannot be read as a CSV file: {error}.") from error


def measured_table(rows: Iterable[Mapping[str, str]], source: str, columns: Columns | None = None) -> MeasuredTable:
    """Group rows and look them over.

    Args:
        rows: one mapping from column to text for each.
        source: stands in messages.
        columns: which column holds what.

    Raises:
        DeviceModelError: a column is missing, or no row can be read.
    """
    columns = columns or Columns()
    seen: set[tuple[tuple[str, str], ...]] = set()
    repeated = 0
    unreadable: list[str] = []
    collected: dict[Group, dict[Setting, tuple[list[int], list[int]]]] = {}
    for number, row in enumerate(rows, start=2):
        key = tuple(sorted((str(name), str(value)) for name, value in row.items()))
        if key in seen:
            repeated += 1
            continue
        seen.add(key)
        try:
            group, setting, prefill, decode = _read(row, columns)
        except KeyError as error:
            raise DeviceModelError(f"{source} has no column {error}; its columns are {', '.join(row)}.") from error
        except (ValueError, TypeError):
            unreadable.append(f"line {number}")
            continue
        times = collected.setdefault(group, {}).setdefault(setting, ([], []))
        times[0].append(prefill)
        times[1].append(decode)
    if not collected:
        raise DeviceModelError(f"{source} has no row that can be read.")
    groups = {
        group: _look_over(group, {s: Times(tuple(p), tuple(d)) for s, (p, d) in settings.items()})
        for group, settings in collected.items()
    }
    findings = []
    if repeated:
        findings.append(f"{repeated} rows repeat another one in every column, to the last digit: counted once.")
    if unreadable:
        findings.append(f"rows without positive numbers, left out: {', '.join(unreadable)}.")
    return MeasuredTable(source, groups, (*findings, *_derived(groups)))


def _read(row: Mapping[str, str], columns: Columns) -> tuple[Group, Setting, int, int]:
    """Raises KeyError for a missing column, ValueError or TypeError for a value that cannot be."""
    group = Group(row[columns.model], row[columns.hardware], _whole(row[columns.tensor_parallel]))
    setting = Setting(_whole(row[columns.prompt]), _whole(row[columns.batch]), _whole(row[columns.output]))
    prefill, decode = float(row[columns.prefill]), float(row[columns.decode])
    if not (math.isfinite(prefill) and math.isfinite(decode) and prefill > 0 and decode > 0):
        raise ValueError("times must be positive")
    return group, setting, round(prefill * columns.nanoseconds), round(decode * columns.nanoseconds)


def _whole(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError("sizes must be positive")
    return value


def _look_over(group: Group, times: Mapping[Setting, Times]) -> MeasuredGroup:
    """Leave out experiments whose prefill is faster than a smaller one's along the same axis."""
    findings = []
    kept = dict(times)
    while (pair := _contradiction(kept)) is not None:
        broken, witness = _blame(kept, *pair)
        smaller, larger = pair
        findings.append(
            f"{group}, {broken}: the prefill of {larger.tokens:,} tokens takes {_show(kept[larger])} where that of "
            f"{smaller.tokens:,} takes {_show(kept[smaller])}; the others agree with the {witness.tokens:,}. Left out, "
            "with the decode times of the same runs."
        )
        del kept[broken]
    return MeasuredGroup(group, kept, tuple(findings))


def _contradiction(times: Mapping[Setting, Times]) -> tuple[Setting, Setting] | None:
    """The worst pair (smaller, larger) of equal prompts or equal batches in which the larger is faster than noise."""
    worst: tuple[float, Setting, Setting] | None = None
    for small, small_times in times.items():
        for large, large_times in times.items():
            comparable = large.prompt == small.prompt or large.batch == small.batch
            if not comparable or large.tokens <= small.tokens:
                continue
            ratio = statistics.median(large_times.prefill) / statistics.median(small_times.prefill)
            if ratio < _FASTER and (worst is None or ratio < worst[0]):
                worst = ratio, small, large
    return (worst[1], worst[2]) if worst else None


def _blame(times: Mapping[Setting, Times], small: Setting, large: Setting) -> tuple[Setting, Setting]:
    """(broken, sound): the one whose time per token is farther from that of the three nearest in size of the others."""

    def per_token(setting: Setting) -> float:
        return statistics.median(times[setting].prefill) / setting.tokens

    others = [setting for setting in times if setting not in (small, large)]

    def distance(setting: Setting) -> float:
        near = sorted(others, key=lambda other: abs(math.log(other.tokens / setting.tokens)))[:3]
        if not near:
            return 0.0
        return abs(math.log(per_token(setting) / statistics.median(per_token(other) for other in near)))

    return (small, large) if distance(small) > distance(large) else (large, small)


def _derived(groups: Mapping[Group, MeasuredGroup]) -> list[str]:
    """Groups whose times are another's times a constant, all of them: computed, not measured."""
    found = []
    names = list(groups)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            if one.model != other.model or one.tensor_parallel != other.tensor_parallel:
                continue
            factors = _factors(groups[one].times, groups[other].times)
            if factors is not None:
                found.append(
                    f"{other}: every prefill time is {factors[0]:.4g} times that of {one.hardware} and every decode "
                    f"time {factors[1]:.4g} times: computed from it, not measured."
                )
    return found


def _factors(one: Mapping[Setting, Times], other: Mapping[Setting, Times]) -> tuple[float, float] | None:
    if one.keys() != other.keys() or len(one) < 3:
        return None
    prefill: list[float] = []
    decode: list[float] = []
    for setting, times in one.items():
        others = other[setting]
        if len(others.prefill) != len(times.prefill):
            return None
        prefill += [b / a for a, b in zip(times.prefill, others.prefill, strict=True)]
        decode += [b / a for a, b in zip(times.decode, others.decode, strict=True)]
    if _constant(prefill) and _constant(decode):
        return statistics.median(prefill), statistics.median(decode)
    return None


def _constant(values: Sequence[float]) -> bool:
    """Times are rounded to nanoseconds, so that ratios of measured milliseconds agree to six digits and more."""
    return max(values) / min(values) < 1 + 1e-5


def _show(times: Times) -> str:
    return show_time(statistics.median(times.prefill))
