"""What a report says in words: the sentence on top, and what a reader must know before believing anything of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from chairlift.lab.report.figures import RunFigures
from chairlift.lab.report.scale import number, seconds, share
from chairlift.lab.report.sources import RunView, Source
from chairlift.lab.runs.compare import CAUTION
from chairlift.records.metrics import NOT_OBSERVABLE, Distribution

_NAMED: Final = 4
_BOTTLENECK: Final = "the client was the bottleneck"
_EVEN: Final = 1.05
"""Rates that differ by less are called much the same."""


def lead(views: Sequence[RunView], figures: Sequence[RunFigures]) -> str:
    """What runs of one load come to, in a few short sentences."""
    if len(views) == 1:
        return " ".join(_alone(figures[0]))
    ranked = sorted((one for one in figures if one.rate), key=lambda one: -(one.rate or 0))
    names = listed([one.label for one in figures])
    sentences = [f"{figures[0].requests:,} requests of the load {views[0].load_name!r}, put to each of {names}."]
    if len(ranked) >= 2:
        best, worst = ranked[0], ranked[-1]
        times = (best.rate or 0) / (worst.rate or 1)
        rates = f"{sentence(best.label)} gave {number(best.rate)} output tokens/s"
        if times < _EVEN:
            span = f"from {number(worst.rate)} to {number(best.rate)} output tokens/s"
            sentences.append(f"All gave much the same: {span}.")
        else:
            sentences.append(f"{rates}, {number(times)} times as many as {worst.label} ({number(worst.rate)}).")
        sentences += _waits(best, worst)
        sentences += _useful(best, worst)
    return " ".join(sentences)


def cautions(source: Source, figures: Mapping[str, RunFigures]) -> Iterator[str]:
    """Findings that put a figure in doubt, the weightiest first; none is an opinion.

    Args:
        source: of the report.
        figures: of each of its runs, by label and load (see `RunView.load_key`).
    """
    if source.study is None and len(source.groups()) > 1:
        yield "The runs had different loads: each has pictures of its own, and no figure is comparable across them."
    if source.study is not None and source.study.status != "complete":
        yield "The study was broken off: what is here is what it had come to."
    yield from (f"A run of the study is not here: {one}" for one in source.missing)
    if source.study is not None:
        yield from map(sentence, source.study.notes)
    noted = "" if source.study is None else " ".join(source.study.notes)
    doubted: dict[str, list[str]] = {}
    for view in source.runs:
        for words in _doubts(view, figures[key_of(view)]):
            if _BOTTLENECK in words and _BOTTLENECK in noted:
                continue  # the study says so itself
            doubted.setdefault(words, []).append(view.label)
    every = len(source.runs)
    for words, labels in doubted.items():
        yield f"{'All runs' if len(labels) == every > 1 else _few(labels)}: {words}"
    if source.study is None and len(source.runs) > 1:
        yield sentence(CAUTION)


def wrong(source: Source) -> bool:
    """Whether something is wrong with what was looked at: a run that did not come to its end, requests that failed, a
    client that was the bottleneck, loads that differ.
    """
    if source.missing or (source.study is not None and source.study.status != "complete"):
        return True
    if source.study is None and len(source.groups()) > 1:
        return True
    return any(
        not view.complete
        or _bottleneck(view)
        or _at(view, "summary", "requests", "errors")
        or _at(view, "summary", "requests", "refused")
        or _lost(view)
        for view in source.runs
    )


def key_of(view: RunView) -> str:
    """Unlike for any two runs of a report."""
    return str(view.folder)


def _alone(one: RunFigures) -> Iterator[str]:
    if not one.requests:
        yield "No request came to its end."
        return
    whole = "all answered" if one.answered == one.requests else f"{one.answered:,} of them answered"
    rate = f"{number(one.rate)} output tokens/s" if one.rate else "no rate of output tokens"
    yield f"{one.requests:,} requests, {whole}: {rate}."
    ttft, itl = one.latencies["ttft"].distribution, one.latencies["itl"].distribution
    if ttft.percentiles:
        first = f"The first token came after {_s(ttft.percentiles[50])} (median; {_tail(ttft)})"
        if itl.percentiles:
            first += f", each further one after {_s(itl.percentiles[50])} ({_tail(itl)})"
        yield f"{first}."
    if itl.unobservable and not itl.percentiles:
        yield f"The time between tokens was {NOT_OBSERVABLE}."
    if one.usage is not None and one.usage.useful is not None:
        useful, busy = share(one.usage.useful), share(one.usage.busy)
        yield f"Of the tokens computed, {useful} were useful; the device was busy {busy} of the time."


def _tail(latency: Distribution) -> str:
    """p99, or the maximum of values too few for one."""
    p99 = latency.told(99)
    return f"the longest {_s(latency.maximum or 0.0)}" if p99 is None else f"p99 {_s(p99)}"


def _waits(best: RunFigures, worst: RunFigures) -> Iterator[str]:
    one, other = (run.latencies["ttft"].distribution for run in (best, worst))
    if one.percentiles and other.percentiles:
        yield (
            f"The median time to first token was {_s(one.percentiles[50])} with {best.label} and "
            f"{_s(other.percentiles[50])} with {worst.label}."
        )


def _useful(best: RunFigures, worst: RunFigures) -> Iterator[str]:
    if best.usage and worst.usage and best.usage.useful is not None and worst.usage.useful is not None:
        useful, other = share(best.usage.useful), share(worst.usage.useful)
        yield f"Of the tokens computed, {useful} were useful with {best.label} and {other} with {worst.label}."


def _doubts(view: RunView, figures: RunFigures) -> Iterator[str]:
    if not view.complete:
        yield "it did not come to its end, so what was under way is cut."
    if figures.failed:
        told = ", ".join(f"{count:,} {name}" for name, count in figures.failed.items())
        yield f"{figures.requests - figures.answered:,} of {figures.requests:,} requests got no answer ({told})."
    if refused := _at(view, "summary", "requests", "refused"):
        yield f"{refused:,} traces cannot be, and are in no figure."
    if lost := _lost(view):
        yield lost
    if _bottleneck(view):
        reasons = ", ".join(str(one) for one in _at(view, "client", "reasons") or ())
        yield f"{_BOTTLENECK} ({reasons}): the figures are the client's, not the target's."
    if _at(view, "summary", "steady", "stationary") is False:
        yield "it was not stationary: latencies were still growing, so that they depend on how long it ran."
    if view.engine is not None and view.grid is None and view.steps:
        yield "its records do not say whose tokens a step computed (an older version's): no picture of its slots."
    yield from view.manifest.results.get("warnings") or ()
    target = view.manifest.target
    if target.get("virtual_time"):
        provenance = (target.get("details") or {}).get("provenance") or "of unknown origin"
        yield f"nothing was computed: times are those of the device model {target.get('name')} ({provenance})."


def _lost(view: RunView) -> str:
    """Why the records cannot be whole; empty where they may be. A closed run says how many requests it had."""
    if view.client is None or not view.complete:
        return ""
    counts = [_at(view, "summary", "requests", name) for name in ("scheduled", "warmup", "refused")]
    known = [one for one in counts if isinstance(one, int)]
    if len(known) < len(counts) or (kept := len(view.traces)) == (told := sum(known)):
        return ""
    return f"its records are not whole: it closed with {told:,} requests, and {kept:,} are there."


def _few(labels: Sequence[str]) -> str:
    """Names of runs, of many the first."""
    return listed(labels) if len(labels) <= _NAMED else f"{', '.join(labels[:_NAMED])} and {len(labels) - _NAMED} more"


def _bottleneck(view: RunView) -> bool:
    return bool(_at(view, "client", "bottleneck"))


def _at(view: RunView, *path: str) -> Any:
    value: Any = view.manifest.results
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _s(value: float) -> str:
    return seconds(value * 1e9)


def sentence(words: str) -> str:
    """With a capital."""
    return words[:1].upper() + words[1:]


def listed(names: Sequence[str]) -> str:
    """As in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
