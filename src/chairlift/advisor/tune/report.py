"""Tuned settings as lines for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from chairlift.advisor.choose.report import setting_words
from chairlift.advisor.evaluate.relief import MEANING
from chairlift.advisor.evaluate.targets import CAPACITY, Targets
from chairlift.advisor.tune.advice import Tried, Tuned
from chairlift.advisor.tune.neighbours import Change
from chairlift.advisor.tune.order import Walk
from chairlift.advisor.tune.verify import Verified
from chairlift.core.config import flag
from chairlift.lab.studies.words import NONE, listed, number, percent, seconds

_WIDTH: Final = 110


def tuned_lines(tuned: Tuned) -> Iterator[str]:
    """The settings; what they come to beside the defaults; each parameter; what binds."""
    winner, targets = tuned.winner, tuned.targets
    yield from _paragraph(" ".join(_flags(winner.settings)))
    if not winner.runs:
        refusal = next((one.refusal for one in winner.outcomes if one.refusal), None)
        yield from _paragraph(f"Nothing runs: {'' if refusal is None else refusal.message}")
        return
    if not tuned.limits_met:
        yield from _paragraph(
            "No settings keep every limit in every round on this device at the load's rate; these come closest."
        )
    yield ""
    yield from _beside_defaults(tuned)
    yield ""
    yield from _parameters(tuned)
    if targets.objective == CAPACITY:
        yield "(half and double: output tokens/s and limits with the load as fast as the tuned settings can take it)"
    yield ""
    yield from _binding(tuned)
    found = tuned.found
    told = f"Search: {found.trials:,} trials"
    if found.resumed:
        told += f", {found.resumed:,} of them from before"
    if found.broke_limits:
        told += f"; {found.broke_limits:,} broke a limit"
    refused = [f"{count:,} {kind.replace('_', ' ')}" for kind, count in found.refusals.items()]
    yield told + (f"; did not run: {listed(refused)}" if refused else "") + "."
    if tuned.warning:
        yield from _paragraph(f"Warning: {tuned.warning}")
    for note in tuned.load.notes:
        yield from _paragraph(f"Note: {note}.")
    if targets.needs_streams and tuned.space.policy != "continuous":
        yield "Note: tokens are streamed as they are computed (--release token), since first tokens matter."


def _flags(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        if value == ():
            continue
        yield setting_words(name, value)


def _beside_defaults(tuned: Tuned) -> Iterator[str]:
    targets = tuned.targets
    columns: list[tuple[str, Tried]] = [("tuned", tuned.winner), ("defaults", tuned.default)]
    rows: list[tuple[str, ...]] = [("", *(name for name, _ in columns))]
    rows.append((targets.words, *(_mean(one, targets) for _, one in columns)))
    if targets.objective == CAPACITY:
        rows.append(("  times the load's rate", *(_times(one) for _, one in columns)))
    running = next((one.outcomes[0].figures for _, one in columns if one.outcomes[0].figures), None)
    for place, limit in enumerate(() if running is None else targets.reached(running)):
        cells = (_limit(one, targets, place) for _, one in columns)
        rows.append((f"{limit.name}, at most {seconds(limit.limit)}", *cells))
    rows.append(("sequences in a step, mean", *(_figure(one, "rows") for _, one in columns)))
    rows.append(("KV blocks at the peak", *(_share(one) for _, one in columns)))
    rows.append(("preemptions", *(_figure(one, "preemptions") for _, one in columns)))
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        yield f"{row[0]:<{widths[0]}}" + "".join(
            f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)
        )


def _mean(one: Tried, targets: Targets) -> str:
    value = one.mean(targets)
    return "does not run" if not one.runs else NONE if value is None else number(value)


def _times(one: Tried) -> str:
    return NONE if one.capacity is None else number(one.capacity.factor)


def _limit(one: Tried, targets: Targets, place: int) -> str:
    values = [list(targets.reached(outcome.figures))[place].value for outcome in one.outcomes if outcome.figures]
    known = [value for value in values if value is not None]
    return seconds(max(known)) if known else NONE


def _figure(one: Tried, name: str) -> str:
    values = [float(getattr(outcome.figures, name)) for outcome in one.outcomes if outcome.figures]
    return number(sum(values) / len(values)) if values else NONE


def _share(one: Tried) -> str:
    values = [outcome.figures.kv_peak for outcome in one.outcomes if outcome.figures]
    return percent(max(values)) if values else NONE


def _parameters(tuned: Tuned) -> Iterator[str]:
    rows = [("parameter", "value", "half", "double", "what binds it")]
    rows += [
        (name, _value(one.name, one.value), _change(one.name, one.half), _change(one.name, one.double), one.binding)
        for one in tuned.parameters
        for name in (flag(one.name),)
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _value(name: str, value: Any) -> str:
    return setting_words(name, value).partition(" ")[2] or ("on" if value else "off")


def _change(name: str, change: Change | None) -> str:
    """What would come of another value."""
    if change is None:
        return NONE
    value = _value(name, change.value)
    if change.refusal:
        return f"{value}: does not run"
    parts = [] if change.objective is None else [f"{change.objective:+.1%}"]
    parts += [f"breaks {one.flag} ({seconds(one.value)})" for one in change.broken]
    if change.spent is not None and not change.broken:
        parts.append(f"{percent(change.spent)} of a limit")
    return f"{value}: {', '.join(parts) or NONE}"


def _binding(tuned: Tuned) -> Iterator[str]:
    by_throughput = tuned.load.waits_for_the_target
    gains = [
        f"{MEANING[one.constraint]} {(one.throughput if by_throughput else one.e2e):+.0%}" for one in tuned.reliefs
    ]
    measure = "output tokens/s" if by_throughput else "mean time from end to end"
    if gains:
        yield from _paragraph(f"With more of one thing, by {measure}: {listed(gains)}.")


def walk_lines(walk: Walk) -> Iterator[str]:
    """The tuning order, stage by stage."""
    yield "The order in which to tune: one alone, then more and more with lengths alike, then lengths as they are."
    head = ("stage", "at once", "tokens/s", "TTFT p99", "between p99", "end to end p99", "KV", "what was seen")
    rows: list[tuple[str, ...]] = [head]
    for stage in walk.stages:
        figures = stage.figures
        if figures is None:
            rows.append((stage.name, str(stage.users), *([NONE] * 5), stage.refusal))
            continue
        rows.append(
            (
                stage.name,
                str(stage.users),
                number(figures.tokens_per_second),
                seconds(figures.ttft.p99),
                NONE if figures.itl is None else seconds(figures.itl.p99),
                seconds(figures.e2e.p99),
                percent(figures.kv_peak),
                stage.remark,
            )
        )
    widths = [max(len(row[place]) for row in rows) for place in range(len(head))]
    for row in rows:
        yield "  ".join(
            f"{cell:<{width}}" if place in (0, len(head) - 1) else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
    yield from _paragraph(
        f"So far the most at once before something gave way is {walk.concurrency:,}. Start there and vary the "
        "rest. Never everything at its maximum from the start: most sequences together with the greatest "
        "length promise memory that is not there."
    )


def verified_lines(verified: Verified, targets: Targets) -> Iterator[str]:
    """Prediction and measurement side by side."""
    yield f"On {verified.target}, {len(verified.candidates[0].runs)} repeats of each in turns, by {targets.words}:"
    rows: list[tuple[str, ...]] = [("", "predicted", "measured", "prediction's error", "limits", "settings")]
    rows += [
        (
            one.label,
            number(one.predicted),
            number(one.measured),
            NONE if one.error is None else f"{one.error:+.1%}",
            "kept" if one.violation <= 1 else f"{number(one.violation)} times",
            " ".join(_flags(one.settings)),
        )
        for one in verified.candidates
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(
            f"{cell:<{width}}" if place in (0, len(row) - 1) else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
    ratio = verified.against_defaults
    if verified.winner is verified.candidates[-1]:
        yield "The defaults were best: the difference is the simulator's error."
    elif ratio is not None:
        better = verified.better(targets)
        word = {True: "better", False: "not better beyond noise", None: "whether that is noise is not known"}[better]
        yield f"Winner: {verified.winner.label}; over the defaults {ratio}: {word}."


def _paragraph(text: str) -> Sequence[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
