"""The table of a comparison: every cell a figure that was measured in these runs, or counted in this source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from chairlift.core.config import PolicyName
from chairlift.core.ledger import Category
from chairlift.lab.compare.comparison import Comparison
from chairlift.lab.compare.complexity import SETTINGS, lines_of_policy
from chairlift.lab.compare.recoverable import StepLine
from chairlift.lab.measured import EngineFigures, Measured
from chairlift.lab.runs.bench import ENGINE
from chairlift.lab.studies.words import NONE, number, seconds, spread
from chairlift.records.metrics import NOT_OBSERVABLE
from chairlift.records.reader import Run

_TTFT, _E2E, _BETWEEN = "ttft_from_schedule", "end_to_end_from_schedule", "time_between_tokens"


@dataclass(frozen=True, slots=True)
class Row:
    """One line."""

    group: str
    """granularity, throughput, latency, tail, memory, complexity, waste."""
    title: str
    unit: str
    cells: tuple[str, ...]
    """In the order of the contenders."""


Values = Callable[[Measured], float | None]


def rows(comparison: Comparison) -> list[Row]:
    """All lines, in order."""
    made = [
        *_client_rows(comparison),
        *(_engine_rows(comparison) if _engines(comparison) else ()),
        *_counted_rows(comparison),
    ]
    order = ("granularity", "throughput", "latency", "tail", "memory", "complexity", "waste")
    return sorted(made, key=lambda row: order.index(row.group))


def _engines(comparison: Comparison) -> bool:
    return all(one.engine is not None for several in comparison.runs.values() for one in several)


def _client_rows(comparison: Comparison) -> Iterator[Row]:
    def measured(group: str, title: str, unit: str, values: Values) -> Row:
        return Row(group, title, unit, tuple(spread([values(r) for r in runs]) for runs in _in_order(comparison)))

    def latency(group: str, title: str, metric: str, which: str | float) -> Row:
        cells = []
        for runs in _in_order(comparison):
            hidden = any(not run.distribution(metric).observable for run in runs)
            cells.append(NOT_OBSERVABLE if hidden else spread([run.figure(metric, which) for run in runs]))
        return Row(group, title, "s", tuple(cells))

    yield measured("throughput", "output", "tokens/s", lambda run: run.tokens_per_second)
    yield measured("throughput", "requests", "requests/s", lambda run: run.requests_per_second)
    yield latency("latency", "time to first token, p50", _TTFT, 50)
    yield latency("latency", "time to first token, p99", _TTFT, 99)
    yield latency("latency", "end to end, p50", _E2E, 50)
    yield latency("latency", "end to end, p99", _E2E, 99)
    yield latency("tail", "time between tokens, p50", _BETWEEN, 50)
    yield latency("tail", "time between tokens, p99", _BETWEEN, 99)
    yield latency("tail", "time between tokens, max", _BETWEEN, "max")


def _engine_rows(comparison: Comparison) -> Iterator[Row]:
    def measured(group: str, title: str, unit: str, value: Callable[[EngineFigures], float | None]) -> Row:
        cells = (
            spread([None if run.engine is None else value(run.engine) for run in runs])
            for runs in _in_order(comparison)
        )
        return Row(group, title, unit, tuple(cells))

    yield measured("granularity", "who runs is decided anew every", "steps", _steps_per_decision)
    yield measured("granularity", "which is every", "s", _seconds_per_decision)
    yield measured("granularity", "requests in a step, mean", "", lambda e: e.rows_mean)
    yield measured("memory", "KV blocks held at the peak", "blocks", lambda e: e.kv_peak)
    yield Row("memory", "predicted before: blocks of a batch", "predicted / actual", _each(comparison, _blocks))
    yield Row("memory", "predicted before: duration of a batch", "predicted / actual", _each(comparison, _durations))
    yield measured("memory", "KV held and not used, mean", "share", lambda e: e.reserved_unused)
    yield measured("complexity", "preemptions", "", lambda e: e.preemptions)
    yield measured("complexity", "scheduler, plan and commit of a step", "us", lambda e: e.scheduler_us)
    yield measured("waste", "padding", "share of tokens", lambda e: e.share("padding"))
    yield measured("waste", "dead rows", "share of tokens", lambda e: e.share("dead"))
    yield measured("waste", "recomputed", "share of tokens", lambda e: e.share("recompute"))
    yield Row("waste", "recoverable of these", "s", _recoverable(comparison))
    yield measured("waste", str(Category.HELD), "s", lambda e: e.held)
    yield measured("waste", str(Category.IDLE), "s", lambda e: e.idle)


def _counted_rows(comparison: Comparison) -> Iterator[Row]:
    policies = [one.policy for one in comparison.contenders]
    yield Row("complexity", "settings to choose", "", tuple(str(len(SETTINGS[policy])) for policy in policies))
    yield Row("complexity", "code of the policy", "lines", tuple(str(lines_of_policy(policy)) for policy in policies))


def _in_order(comparison: Comparison) -> Iterator[Sequence[Measured]]:
    return (comparison.runs[one.policy] for one in comparison.contenders)


def _each(comparison: Comparison, cell: Callable[[Sequence[EngineFigures]], str]) -> tuple[str, ...]:
    return tuple(cell([run.engine for run in runs if run.engine is not None]) for runs in _in_order(comparison))


def _recoverable(comparison: Comparison) -> tuple[str, ...]:
    """By one line for all, since under static batching alone rows never vary."""
    steps = [[Run(run.folder / ENGINE).steps() for run in runs] for runs in _in_order(comparison)]
    line = StepLine.of(step for runs in steps for run in runs for step in run)
    return tuple(NONE if line is None else spread([line.recoverable(run) for run in runs]) for runs in steps)


def _steps_per_decision(engine: EngineFigures) -> float | None:
    return engine.steps / len(engine.batches) if engine.batches else 1.0


def _seconds_per_decision(engine: EngineFigures) -> float | None:
    decisions = len(engine.batches) or engine.steps
    return engine.wall / decisions if decisions else None


def _blocks(engines: Sequence[EngineFigures]) -> str:
    """Reservations are exact: shown all the same, since that is what static batching is praised for."""
    batches = [one for engine in engines for one in engine.batches]
    if not batches:
        return f"{NONE} (held as needed)"
    forecast = sum(one.forecast_blocks for one in batches) / len(batches)
    peak = sum(one.peak_blocks for one in batches) / len(batches)
    return f"{number(forecast)} / {number(peak)}"


def _durations(engines: Sequence[EngineFigures]) -> str:
    """Mean predicted and actual duration, of batches that had a forecast."""
    batches = [one for engine in engines for one in engine.batches if one.forecast_time is not None]
    if not batches:
        return NONE if any(engine.batches for engine in engines) else f"{NONE} (never ends)"
    forecast = sum(one.forecast_time or 0 for one in batches) / len(batches) / 1e9
    actual = sum(one.ended - one.started for one in batches) / len(batches) / 1e9
    return f"{seconds(forecast)} / {seconds(actual)}"


HEADINGS: Final[dict[PolicyName, str]] = {
    "static": "batches of {size}, --batch-size",
    "dynamic": "batches of up to {size}, --max-batch-size",
    "continuous": "up to {size} at once, --max-num-seqs",
}
