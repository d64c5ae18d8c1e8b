"""Figures of runs as text: summaries, other tools' views, definitions, differences."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from chairlift.lab.runs.compare import RunDiff
from chairlift.lab.runs.store import with_unit
from chairlift.records.client import ClientVerdict, Evidence
from chairlift.records.client_metrics import PERCENTS
from chairlift.records.client_summary import Summary
from chairlift.records.metrics import NOT_OBSERVABLE, Distribution
from chairlift.records.steady import PEAK_SHARE
from chairlift.records.tools import ToolView

_WIDTH = 100
_LITTLE_OF_IT = 0.01


def number(value: float | None) -> str:
    """Four digits that count; a dash for nothing."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def distribution_lines(distributions: Sequence[Distribution]) -> Iterator[str]:
    """A table with a line for each metric."""
    heads = ["mean", *(f"p{percent:g}" for percent in PERCENTS), "max"]
    width = max(len(f"{one.metric.name} [{one.metric.unit}]") for one in distributions)
    yield f"{'':<{width}}" + "".join(f"{head:>10}" for head in heads) + f"{'values':>10}"
    for one in distributions:
        name = f"{f'{one.metric.name} [{one.metric.unit}]':<{width}}"
        if one.mean is None:
            yield f"{name}  {NOT_OBSERVABLE} in {one.unobservable:,} requests" if one.unobservable else f"{name}  none"
            continue
        values = [one.mean, *(one.told(percent) for percent in PERCENTS), one.maximum]
        beside = "" if one.observable else f"  and {one.unobservable:,} requests {NOT_OBSERVABLE}"
        yield name + "".join(f"{number(value):>10}" for value in values) + f"{one.count:>10,}{beside}"


def summary_lines(summary: Summary) -> Iterator[str]:
    """A run's figures."""
    errors = ", ".join(f"{count:,} {name}" for name, count in summary.errors.items()) or "none failed"
    warmup = f"; {summary.warmup:,} more as warm-up" if summary.warmup else ""
    scheduled = _several(summary.scheduled, "request")
    yield f"{scheduled} scheduled, {summary.answered:,} answered, {errors}{warmup}"
    if not summary.scheduled:
        yield "no request counts, so there are no figures: make warm-up shorter, or the load longer"
    for name, message in summary.examples.items():
        yield f"{name}: {message}"
    for one in summary.refused[:5]:
        yield f"refused: request {one.index}: {one.why}"
    if summary.refused:
        yield f"{_several(len(summary.refused), 'trace')} cannot be, and in no figure"
    yield ""
    yield from distribution_lines(summary.distributions)
    yield ""
    for rate in summary.rates:
        unknown = f" ({NOT_OBSERVABLE}: {rate.unknown:,} answers without a count)" if rate.unknown else ""
        yield f"{rate.name} {number(rate.value if rate.count else None)} {rate.unit}{unknown}"
    if summary.goodput is not None:
        good = summary.goodput
        undecided = f"; {good.undecided:,} more could not be checked" if good.undecided else ""
        yield f"goodput {number(good.value)}: {good.met:,} of {good.scheduled:,} scheduled met the limits{undecided}"
    yield from steady_lines(summary)


def _several(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def steady_lines(summary: Summary) -> Iterator[str]:
    """Window, growth, and Little's law."""
    if (window := summary.window) is not None:
        share = f"{window.share:.0%}" if window.share >= _LITTLE_OF_IT else f"under {_LITTLE_OF_IT:.0%}"
        yield (
            f"longest time at {PEAK_SHARE:.0%} or more of the peak of {window.peak:,} in flight: from "
            f"{window.start / 1e9:.2f} to {window.stop / 1e9:.2f} s, {share} of the run"
        )
    judged = summary.stationarity
    grown = [
        f"{what} from {number(pair[0])} to {number(pair[1])}{unit}"
        for what, grows, pair, unit in (
            ("time to first token", judged.ttft_grows, judged.ttft, " s"),
            ("requests in flight", judged.in_flight_grows, judged.in_flight, ""),
        )
        if grows and pair is not None
    ]
    if judged.stationary is None:
        yield "too few requests to tell whether the run was stationary"
    else:
        yield "stationary" if judged.stationary else f"not stationary, still growing: {', '.join(grown)}"
    law = summary.little
    if law.holds is not None:
        word = "holds" if law.holds else "does not hold: traces are missing or a clock is wrong"
        yield f"Little's law {word}: {number(law.sampled)} in flight as sampled, {number(law.expected)} as X times R"


def client_lines(verdict: ClientVerdict) -> Iterator[str]:
    """Whether the client was the bottleneck, and by what."""
    if not verdict.bottleneck:
        yield "the client kept up"
    for one in verdict.reasons:
        yield f"the client was the bottleneck: {one.name} {_evidence(one)}, the limit is {_limit(one)} ({one.meaning})"


def tool_lines(view: ToolView) -> Iterator[str]:
    """The run by another tool's definitions."""
    yield f"by the definitions of {view.tool.name}: {view.successful:,} successful, {view.failed:,} failed"
    yield from distribution_lines(view.distributions)
    rate = view.output_rate
    yield f"{rate.name} {number(rate.value if rate.count else None)} {rate.unit}"
    yield f"source: {view.tool.source}"


def definition_lines(told: Mapping[str, str]) -> Iterator[str]:
    """Each name with its words under it."""
    for name, words in told.items():
        yield name
        yield from textwrap.wrap(words, _WIDTH, initial_indent="    ", subsequent_indent="    ")


def diff_lines(found: RunDiff) -> Iterator[str]:
    """Loads, parameters, surroundings, results, and what to make of them."""
    yield f"{found.before} -> {found.after}"
    yield str(found.load)
    for title, differences in (("parameters", found.parameters), ("machine and versions", found.surroundings)):
        yield f"{title}: " + ("the same" if not differences else "")
        for differs in differences:
            before, after = (with_unit(differs.what, value) for value in (differs.before, differs.after))
            yield f"  {replace(differs, before=before, after=after)}"
    yield "results:"
    width = max((len(f"{one.what} [{one.unit}]") for one in found.results), default=0)
    for one in found.results:
        change = "" if one.change is None else f"{one.change:+.1%}"
        name = f"{one.what} [{one.unit}]"
        yield f"  {name:<{width}}{number(one.before):>12}{number(one.after):>12}{change:>10}".rstrip()
    yield from _wrapped(found.notes)


def _wrapped(notes: Iterable[str]) -> Iterator[str]:
    for note in notes:
        yield from textwrap.wrap(note, _WIDTH)


def _evidence(one: Evidence) -> str:
    return "unknown" if one.value is None else _in_unit(one.value, one.unit)


def _limit(one: Evidence) -> str:
    return _in_unit(one.limit, one.unit)


def _in_unit(value: float, unit: str) -> str:
    return f"{value / 1e6:.3g} ms" if unit == "ns" else f"{value:.3g}"
