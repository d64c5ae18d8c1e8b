"""A choice as lines for people."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from chairlift.advisor.choose.advice import Choice
from chairlift.advisor.choose.decision import SIMPLEST
from chairlift.advisor.choose.tail import SHARE
from chairlift.advisor.evaluate.outcome import Figures
from chairlift.advisor.evaluate.relief import MEANING
from chairlift.core.config import PolicyName, flag
from chairlift.lab.compare.complexity import SETTINGS, lines_of_policy
from chairlift.lab.loads.units import SECOND
from chairlift.lab.studies.words import listed, number, percent, seconds, spread

_WIDTH: Final = 110


def choice_lines(choice: Choice) -> Iterator[str]:
    """The answer first; then what it rests on."""
    yield from _paragraph(_answer(choice))
    yield ""
    yield from table_lines(choice)
    yield ""
    for text in _reasons(choice):
        yield from _paragraph(text)
    for note in choice.load.notes:
        yield from _paragraph(f"Note: {note}.")


def settings_words(choice: Choice, policy: PolicyName) -> str:
    """The settings of a policy as flags."""
    return " ".join(setting_words(name, value) for name, value in choice.contenders[policy].settings.items())


def setting_words(name: str, value: object) -> str:
    """One setting as it is written on the command line."""
    if isinstance(value, bool):
        return flag(name) if value else f"--no-{flag(name).removeprefix('--')}"
    if isinstance(value, tuple):
        return f"{flag(name)} {','.join(map(str, value))}"
    if name.endswith(("delay", "wait", "itl")) and isinstance(value, int):
        return f"{flag(name)} {value * 1000 / SECOND:g}ms"
    return f"{flag(name)} {value:g}" if isinstance(value, float) else f"{flag(name)} {value}"


def _answer(choice: Choice) -> str:
    decision = choice.decision
    if decision.policy is None:
        refusal = next((one.refusal for c in choice.contenders.values() for one in c.outcomes if one.refusal), None)
        return f"Nothing runs: {'' if refusal is None else refusal.message}"
    words = f"{decision.policy} batching: {settings_words(choice, decision.policy)}"
    if not decision.limits_met:
        words += ". No policy keeps every limit in every round on this device; this one comes closest"
    return words


def table_lines(choice: Choice) -> Iterator[str]:
    """The three policies side by side, each with its best settings: mean, and smallest to largest of the rounds."""
    policies = [policy for policy in SIMPLEST if all(one.figures for one in choice.contenders[policy].outcomes)]
    grid: list[tuple[str, ...]] = [("", *policies)]
    size = {"static": "batch_size", "dynamic": "max_batch_size", "continuous": "max_num_seqs"}
    grid.append(
        ("  " + "as it ran", *(f"{flag(size[one])} {choice.contenders[one].settings[size[one]]}" for one in policies))
    )
    group = ""
    heads: dict[int, str] = {}
    for title, name, value in _ROWS:
        if title != group:
            group = title
            heads[len(grid)] = title
        cells = (
            spread([_value(value, one.figures) for one in choice.contenders[policy].outcomes]) for policy in policies
        )
        grid.append((f"  {name}", *cells))
    heads[len(grid)] = "complexity"
    grid.append(("  settings to choose", *(str(len(SETTINGS[policy])) for policy in policies)))
    grid.append(("  code of the policy, lines", *(str(lines_of_policy(policy)) for policy in policies)))
    widths = [max(len(line[place]) for line in grid) for place in range(len(grid[0]))]
    for index, line in enumerate(grid):
        if index in heads:
            yield heads[index]
        right = "".join(f"  {cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True))
        yield f"{line[0]:<{widths[0]}}{right}".rstrip()
    for policy in SIMPLEST:
        if policy not in policies:
            refusal = next(one.refusal for one in choice.contenders[policy].outcomes if one.refusal)
            yield from _paragraph(f"{policy} does not run: {refusal.message}")


def _value(value: Callable[[Figures], float | None], figures: Figures | None) -> float | None:
    return None if figures is None else value(figures)


_ROWS: Final[tuple[tuple[str, str, Callable[[Figures], float | None]], ...]] = (
    ("granularity", "steps from one decision who runs to the next", lambda f: f.steps / f.batches if f.batches else 1),
    ("granularity", "sequences in a step, mean over time", lambda f: f.rows),
    ("throughput", "output tokens/s", lambda f: f.tokens_per_second),
    ("throughput", "requests/s", lambda f: f.requests_per_second),
    ("latency", "time to first token p50, s", lambda f: f.ttft.p50),
    ("latency", "end to end mean, s", lambda f: f.e2e.mean),
    ("tail", "time to first token p99, s", lambda f: f.ttft.p99),
    ("tail", "time between tokens p99, s", lambda f: None if f.itl is None else f.itl.p99),
    ("tail", "end to end p99, s", lambda f: f.e2e.p99),
    ("memory", "KV blocks held at the peak, % of the pool", lambda f: 100 * f.kv_peak),
    ("memory", "preemptions", lambda f: f.preemptions),
    ("waste", "padding, % of tokens", lambda f: 100 * f.tokens["padding"] / max(1, sum(f.tokens.values()))),
    ("waste", "dead rows, % of tokens", lambda f: 100 * f.tokens["dead"] / max(1, sum(f.tokens.values()))),
    ("waste", "recoverable, % of the time", lambda f: 100 * f.recoverable),
    ("waste", "held (requests wait, device does not), % of the time", lambda f: 100 * f.ledger["held"]),
    ("waste", "idle, % of the time", lambda f: 100 * f.ledger["idle"]),
)


def _reasons(choice: Choice) -> Iterator[str]:
    decision = choice.decision
    if decision.policy is None:
        return
    yield from _gap_words(choice)
    if decision.policy != "continuous":
        yield _saved(decision.policy)
    else:
        yield from _ledger_words(choice)
    yield from _binding_words(choice)
    yield from _tail_words(choice)
    if choice.confidence is not None:
        yield f"Confidence: {choice.confidence.level}: {'; '.join(choice.confidence.reasons)}."


def _gap_words(choice: Choice) -> Iterator[str]:
    targets, within = choice.targets, choice.decision.within
    for policy, gap in choice.decision.gaps.items():
        if gap.cost == float("inf"):
            yield f"{policy}: it breaks a limit that continuous keeps, or does not run where continuous does."
        elif gap.cost == 0:
            yield f"{policy}: it keeps limits that continuous breaks, or runs where that does not."
        elif gap.interval is None:
            yield f"{policy}: both break limits; its worst is {number(gap.cost)} times that of continuous."
        else:
            side = "within" if gap.enough(within) else "not within"
            few, most = min(gap.rounds), max(gap.rounds)
            costs = number(gap.cost) if most - few < 0.005 else f"{number(gap.cost)} ({number(few)} to {number(most)})"
            yield (
                f"{policy}: {costs} times as bad as continuous by {targets.words} (1: as good; rounds in brackets); "
                f"{side} {within:.0%}."
            )


def _saved(policy: PolicyName) -> str:
    settings, lines = len(SETTINGS[policy]), lines_of_policy(policy)
    more, longer = len(SETTINGS["continuous"]), lines_of_policy("continuous")
    waits = "" if policy == "dynamic" else ", no timer"
    return (
        f"Saved by {policy}: {settings} settings to choose instead of {more} and {lines} lines of scheduler instead of "
        f"{longer}; memory and duration of a batch are known before it starts, nothing is preempted{waits}."
    )


def _ledger_words(choice: Choice) -> Iterator[str]:
    """What closed batches lose, by the ledger."""
    for policy in ("static", "dynamic"):
        figures = choice.contenders[policy].outcomes[0].figures if policy in choice.contenders else None
        if figures is None:
            continue
        total = max(1, sum(figures.tokens.values()))
        parts = [
            f"{percent(figures.tokens[kind] / total)} of its tokens are {words}"
            for kind, words in (("dead", "dead rows"), ("padding", "padding"))
            if figures.tokens[kind] / total > 0.005
        ]
        if figures.recoverable > 0.005:
            parts.append(f"{percent(figures.recoverable)} of the time could be had back without them")
        if figures.ledger["held"] > 0.005:
            parts.append(f"{percent(figures.ledger['held'])} of the time requests wait and the device does nothing")
        queued = sum(figures.waits.values())
        parts.append(f"a request waits {seconds(queued)} on average before it starts")
        yield f"What {policy} loses: {'; '.join(parts)}."
    figures = choice.contenders["continuous"].outcomes[0].figures
    if figures is not None:
        yield f"Under continuous a request waits {seconds(sum(figures.waits.values()))} before it starts."


def _binding_words(choice: Choice) -> Iterator[str]:
    binding = choice.binding
    if binding is None:
        return
    gains = [
        f"{MEANING[one.constraint]} {(one.throughput if binding.by_throughput else one.e2e):+.0%}"
        for one in binding.reliefs
    ]
    measure = "output tokens/s" if binding.by_throughput else "mean time from end to end"
    limits = [f"{one.name} {seconds(one.value)} of {seconds(one.limit)} allowed" for one in binding.limits if one.value]
    word = "nothing but the load itself" if binding.constraint == "load" else binding.constraint
    text = f"Binding: {word}. By {measure}: {listed(gains)}"
    if limits:
        text += f"; {listed(limits)}"
    if binding.without_limits is not None and binding.without_limits > 0:
        text += f"; without the limits {choice.targets.words} would be {binding.without_limits:.0%} better"
    yield text + "."


def _tail_words(choice: Choice) -> Iterator[str]:
    tail, policy = choice.tail, choice.decision.policy
    if tail is None:
        return
    now = f"standard deviation {number(tail.cv_now)} of the mean"
    if policy == "continuous":
        if tail.changes_at is None:
            yield (
                f"Tail of the answers ({now}): even if all were as long as their mean, the answer would be the same: "
                "it is not their lengths that decide."
            )
        else:
            yield (
                f"Tail of the answers ({now}): the answer changes to {tail.to} once lengths are within "
                f"{percent(tail.changes_at)} of their present distance from the mean "
                f"(standard deviation {number(tail.cv_there)})."
            )
    elif tail.changes_at is None:
        yield (
            f"Tail of the answers ({now}): with the longest one in {SHARE} up to {number(tail.looked_up_to)} times as "
            "long the answer is the same."
        )
    else:
        yield (
            f"Tail of the answers ({now}): the answer changes to continuous when the longest one in {SHARE} are "
            f"{number(tail.changes_at)} times as long (standard deviation {number(tail.cv_there)})."
        )


def _paragraph(text: str) -> Sequence[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
