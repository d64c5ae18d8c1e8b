"""The figures of `chairlift demo` as one table, and what they say in sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from chairlift.cli.demo_runs import DemoRun, DemoSizes, LoadName
from chairlift.core.ledger import Category
from chairlift.records.metrics import END_TO_END, TIME_TO_FIRST_TOKEN, Metric, distribution, output_tokens_per_second
from chairlift.records.schema import RequestRecord

_NEXT = (
    ("chairlift serve MODEL --policy continuous", "an OpenAI-compatible server; --help lists every setting"),
    ("chairlift generate MODEL IN.jsonl OUT.jsonl", "answer a file of requests offline; resumes after a crash"),
    ("chairlift demo --record demo && chairlift report demo/staggered-*", "see who had which slot when, as a page"),
    ("chairlift demo --straggler 600", "the classic example at full length"),
    ("make test", "lint, types, import contract, tests"),
)

Figure = Callable[[DemoRun], str]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of each run; a row without a figure is a heading."""

    title: str
    figure: Figure | None = None


def print_demo(runs: Sequence[DemoRun], sizes: DemoSizes) -> None:
    """Print the table, the sentences and the next commands."""
    console = Console(highlight=False)
    for line in _loads(sizes):
        console.print(line)
    console.print()
    console.print(_table(runs, sizes))
    console.print()
    for line in conclusions(runs, sizes):
        console.print(line)
    console.print("\nNext:")
    for command, what in _NEXT:
        console.print(f"  [bold]{command}[/bold]\n      {what}")


def conclusions(runs: Sequence[DemoRun], sizes: DemoSizes) -> list[str]:
    """What the figures say. Sentences that would not be true of these figures are not said."""
    main, side = _by_policy(runs, "staggered"), _by_policy(runs, "straggler")
    rates = {policy: output_tokens_per_second(run.drive.requests).value or 0.0 for policy, run in main.items()}
    best = max(rates, key=rates.__getitem__)
    lines = [
        f"Staggered: {best} gave the most, {rates[best]:.0f} output tokens/s, "
        + " and ".join(f"{rates[best] / rate:.1f} times {name}'s" for name, rate in rates.items() if name != best)
        + "."
    ]
    walls = ", ".join(f"{name} {run.drive.wall / 1e9:.1f} s" for name, run in side.items())
    held = ", ".join(f"{name} {_short_answers(run, sizes):.1f} s" for name, run in side.items())
    dead = ", ".join(f"{name} {run.drive.ledger.tokens.dead}" for name, run in side.items())
    lines.append(
        f"Straggler: with nobody waiting to take a freed slot, all three go on until the long answer ends ({walls}). "
        f"What differs is how long the {sizes.slots - 1} short answers are held back (mean: {held}) "
        f"and how many rows ran for nothing ({dead})."
    )
    return lines


def _table(runs: Sequence[DemoRun], sizes: DemoSizes) -> Table:
    main, side = _by_policy(runs, "staggered"), _by_policy(runs, "straggler")
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("")
    for policy in main:
        table.add_column(policy, justify="right")
    _section(table, f"staggered: {sizes.requests} requests", _MAIN_ROWS, list(main.values()))
    rows = [Row("short answers leave after, s, mean", lambda run: f"{_short_answers(run, sizes):.1f}"), *_SIDE_ROWS]
    _section(table, f"straggler: {sizes.slots} requests", rows, list(side.values()))
    return table


def _loads(sizes: DemoSizes) -> list[str]:
    longs = sum(i % sizes.long_every == sizes.long_every // 2 for i in range(sizes.requests))
    main = (
        f"staggered: {sizes.requests} requests, one every {sizes.gap / 1e9:g} s, {sizes.slots} slots; "
        f"{longs} answers have {sizes.long_answer} tokens, the others {sizes.short_answer}."
    )
    side = (
        f"straggler: {sizes.slots} requests at t = 0, {sizes.slots} slots; "
        f"{sizes.slots - 1} answers have {sizes.short_answer} tokens, one has {sizes.straggler}."
    )
    return [main, side]


def _section(table: Table, headline: str, rows: Sequence[Row], runs: Sequence[DemoRun]) -> None:
    table.add_row(f"[bold]{headline}[/bold]")
    for row in rows:
        if row.figure is None:
            table.add_row(f"[italic]{row.title}[/italic]")
        else:
            table.add_row(f"  {row.title}", *(row.figure(run) for run in runs))
    table.add_section()


def _by_policy(runs: Sequence[DemoRun], load: LoadName) -> dict[str, DemoRun]:
    return {run.policy: run for run in runs if run.load == load}


def _short_answers(run: DemoRun, sizes: DemoSizes) -> float:
    """Mean seconds from arrival to release of all answers but the straggler's."""
    times = [r.released - r.arrival for r in run.drive.requests if r.output_tokens == sizes.short_answer]
    return sum(times) / len(times) / 1e9 if times else 0.0


def _mean(metric: Metric[RequestRecord]) -> Figure:
    def figure(run: DemoRun) -> str:
        value = distribution(metric, run.drive.requests).mean
        return "none" if value is None else f"{value:.2f}"

    return figure


def _p99(metric: Metric[RequestRecord]) -> Figure:
    def figure(run: DemoRun) -> str:
        measured = distribution(metric, run.drive.requests)
        return f"{measured.percentiles[99]:.2f}" if measured.percentiles else "none"

    return figure


def _seconds(category: Category) -> Row:
    return Row(str(category), lambda run: f"{run.drive.ledger.times[category] / 1e9:.2f}")


def _rate(run: DemoRun) -> str:
    value = output_tokens_per_second(run.drive.requests).value
    return "none" if value is None else f"{value:.1f}"


_WALL = Row("wall time, s", lambda run: f"{run.drive.wall / 1e9:.1f}")
_RATE = Row("output tokens/s", _rate)
_TOKENS = [
    Row("tokens computed"),
    Row("prefill", lambda run: f"{run.drive.ledger.tokens.prefill:,}"),
    Row("decode", lambda run: f"{run.drive.ledger.tokens.decode:,}"),
    Row("recompute", lambda run: f"{run.drive.ledger.tokens.recompute:,}"),
    Row("padding", lambda run: f"{run.drive.ledger.tokens.padding:,}"),
    Row("dead", lambda run: f"{run.drive.ledger.tokens.dead:,}"),
]
_LEDGER = [
    Row("where the wall clock went, s"),
    *(_seconds(category) for category in Category if category is not Category.SWITCHING),
    Row("(recoverable of these)", lambda run: f"{run.drive.ledger.recoverable / 1e9:.2f}"),
]
_MAIN_ROWS = [
    _WALL,
    _RATE,
    Row("request latency, s, mean", _mean(END_TO_END)),
    Row("request latency, s, p99", _p99(END_TO_END)),
    Row("time to first token, s, mean", _mean(TIME_TO_FIRST_TOKEN)),
    Row("time to first token, s, p99", _p99(TIME_TO_FIRST_TOKEN)),
    *_TOKENS,
    *_LEDGER,
]
_SIDE_ROWS = [_WALL, _RATE, *_TOKENS[1:3], *_TOKENS[4:], *_LEDGER]
