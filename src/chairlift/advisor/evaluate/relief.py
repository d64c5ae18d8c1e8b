"""The same device with more of one thing: what that gains says what binds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from chairlift.advisor.evaluate.outcome import Figures, Outcome
from chairlift.advisor.evaluate.pool import Pool, Trial
from chairlift.advisor.evaluate.rounds import Round
from chairlift.advisor.evaluate.run import Problem
from chairlift.devices.curve import Table
from chairlift.devices.model import DeviceModel

Constraint: TypeAlias = Literal["memory", "bandwidth", "compute"]
CONSTRAINTS: Final[tuple[Constraint, ...]] = ("memory", "bandwidth", "compute")
MEANING: Final[Mapping[Constraint, str]] = {
    "memory": "twice the KV blocks",
    "bandwidth": "weights, keys and values read twice as fast",
    "compute": "arithmetic twice as fast",
}


@dataclass(frozen=True, slots=True)
class Relief:
    """What twice as much of one thing would bring."""

    constraint: Constraint
    throughput: float
    """Output tokens/s, relative: 0.1 is a tenth more."""
    e2e: float
    """Mean end to end, relative: -0.1 is a tenth less."""


def reliefs(pool: Pool, problem: Problem, settings: Mapping[str, Any], load: Round, base: Figures) -> list[Relief]:
    """Try twice as much of each.

    Args:
        pool: runs them.
        problem: as it is.
        settings: that were chosen.
        load: to live through.
        base: what came of them as it is.
    """
    trials = [_trial(problem, settings, load, constraint, base.blocks) for constraint in CONSTRAINTS]
    return [
        Relief(constraint, *_gains(outcome, base))
        for constraint, outcome in zip(CONSTRAINTS, pool.run(trials), strict=True)
    ]


def _trial(problem: Problem, settings: Mapping[str, Any], load: Round, constraint: Constraint, blocks: int) -> Trial:
    device = problem.device
    if constraint != "memory":
        return Trial(problem.on(faster(device, constraint)), settings, load)
    # Without a memory model nothing checks whether so many blocks fit, which is the point.
    more = {**settings, "num_kv_blocks": 2 * blocks, "kv_cache_memory": None}
    return Trial(problem.on(replace(device, memory=None)), more, load)


def _gains(outcome: Outcome, base: Figures) -> tuple[float, float]:
    figures = outcome.figures
    if figures is None or not base.tokens_per_second or not base.e2e.mean:
        return 0.0, 0.0
    return figures.tokens_per_second / base.tokens_per_second - 1, figures.e2e.mean / base.e2e.mean - 1


def faster(device: DeviceModel, constraint: Constraint, factor: int = 2) -> DeviceModel:
    """A device that reads, or computes, so many times as fast. Its host and its links stay as they are."""
    step = device.step
    table = step.tokens_table
    if constraint == "bandwidth":
        terms = replace(
            step,
            floor=step.floor // factor,
            prompt_floor=step.prompt_floor // factor,
            per_context=step.per_context // factor,
            per_prompt_position=step.per_prompt_position // factor,
            context_table=None if step.context_table is None else _scaled(step.context_table, 0, factor),
            # What the smallest step takes is reading the weights; what larger ones take beyond it is arithmetic.
            tokens_table=None if table is None else _lowered(table, table.ys[0] - table.ys[0] // factor),
        )
    else:
        terms = replace(
            step,
            per_token=step.per_token // factor,
            per_pair=step.per_pair // factor,
            per_sequence=step.per_sequence // factor,
            tokens_table=None if table is None else _scaled(table, table.ys[0], factor),
        )
    return replace(device, step=terms)


def _scaled(table: Table, base: int, factor: int) -> Table:
    return Table(table.xs, tuple(base + max(0, y - base) // factor for y in table.ys))


def _lowered(table: Table, by: int) -> Table:
    return Table(table.xs, tuple(max(0, y - by) for y in table.ys))


def slower(device: DeviceModel, share: float) -> DeviceModel:
    """Every step by a share longer; a negative share makes it shorter."""
    percent = max(1, round(100 * (1 + share)))
    step, host = device.step, device.host
    terms: dict[str, Any] = {
        name: getattr(step, name) * percent // 100 for name in step.__slots__ if not name.endswith("_table")
    }
    for name in ("tokens_table", "context_table"):
        table: Table | None = getattr(step, name)
        terms[name] = None if table is None else Table(table.xs, tuple(y * percent // 100 for y in table.ys))
    return replace(
        device,
        step=replace(step, **terms),
        host=replace(host, fixed=host.fixed * percent // 100, per_sequence=host.per_sequence * percent // 100),
    )
