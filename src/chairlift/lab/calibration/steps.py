"""Steps of chosen shapes on a runner, without a scheduler: what a calibration measures."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from chairlift.core.errors import ConfigError
from chairlift.core.plan import RowKind, StepPlan, TokenCounts
from chairlift.core.request import Nanoseconds
from chairlift.core.runs import Run, TokenRuns
from chairlift.devices.shape import StepShape
from chairlift.engine.params import SamplingParams
from chairlift.engine.sampling import BatchSampler
from chairlift.runners.base import ModelRunner


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's share of a step."""

    start: int
    """Positions computed before."""
    count: int = 1
    """Tokens computed now: 1 for a decode, more for a prompt or a chunk of one."""

    @property
    def end(self) -> int:
        """Positions after the step."""
        return self.start + self.count


@dataclass(frozen=True, slots=True)
class Probe:
    """A step to be measured: decodes first."""

    term: str
    """decode, prefill or mixed."""
    rows: tuple[Row, ...]

    @property
    def tokens(self) -> int:
        return sum(row.count for row in self.rows)

    def blocks(self, block_size: int) -> int:
        """KV blocks that the rows hold together."""
        return sum(-(-row.end // block_size) for row in self.rows)

    def shape(self) -> StepShape:
        """What it costs by."""
        return StepShape.of(_plan(self.rows, _names(len(self.rows)), _no_tables(self.rows)))


class StepTimer:
    """Executes probes on a runner that nobody else uses meanwhile.

    Keys and values are whatever lies in the pool: how long a step takes does not depend on them.

    Args:
        runner: of the model.
        sampler: the one that the runner calls.
        most_rows: of any probe.
    """

    def __init__(self, runner: ModelRunner, sampler: BatchSampler, most_rows: int) -> None:
        self._runner = runner
        self._capacity = runner.capacity()
        self._names = _names(most_rows)
        for name in self._names:
            sampler.add(name, SamplingParams(temperature=0), frozenset())

    def fits(self, probe: Probe) -> bool:
        """Whether the pool holds it."""
        return probe.blocks(self._capacity.block_size) <= self._capacity.num_blocks

    def time(self, probe: Probe) -> Nanoseconds:
        """How long the device works on it, once.

        Raises:
            ConfigError: the pool does not hold it.
            StepFailed: the device failed.
        """
        if not self.fits(probe):
            raise ConfigError(
                f"{probe.shape().describe()} need {probe.blocks(self._capacity.block_size):,} KV blocks; the pool has "
                f"{self._capacity.num_blocks:,}: raise --num-kv-blocks or lower --max-model-len."
            )
        plan = _plan(probe.rows, self._names[: len(probe.rows)], self._tables(probe.rows))
        return self._runner.execute(plan).device_time

    def _tables(self, rows: Sequence[Row]) -> tuple[array[int], ...]:
        """Blocks of their own for each row."""
        tables, first = [], 0
        for row in rows:
            blocks = -(-row.end // self._capacity.block_size)
            tables.append(array("i", range(first, first + blocks)))
            first += blocks
        return tuple(tables)


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"probe-{i}" for i in range(count))


def _no_tables(rows: Sequence[Row]) -> tuple[array[int], ...]:
    return tuple(array("i") for _ in rows)


def _plan(rows: Sequence[Row], names: tuple[str, ...], tables: tuple[array[int], ...]) -> StepPlan:
    """A plan of such rows, each of which samples."""
    rows = sorted(rows, key=lambda row: row.count > 1)
    singles = sum(row.count == 1 for row in rows)
    shares = tuple(TokenCounts(prefill=row.count) for row in rows[singles:])
    tokens = sum(row.count for row in rows)
    return StepPlan(
        step=0,
        now=0,
        policy="continuous",
        request_ids=names,
        kinds=tuple(RowKind.DECODE if row.count == 1 else RowKind.PREFILL for row in rows),
        starts=tuple(row.start for row in rows),
        counts=tuple(row.count for row in rows),
        paddings=(0,) * len(rows),
        samples=(True,) * len(rows),
        tokens=tuple(TokenRuns.of(Run(1, 1, tokens))),
        tables=tables,
        single_token_rows=singles,
        token_counts=TokenCounts(prefill=tokens - singles, decode=singles),
        shares=shares,
    )
