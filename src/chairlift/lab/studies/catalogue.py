"""Which studies there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from chairlift.lab.studies import crowds, experiments
from chairlift.lab.studies.ladder import ladder
from chairlift.lab.studies.myths import myths
from chairlift.lab.studies.parameters import parameters
from chairlift.lab.studies.study import Study
from chairlift.lab.studies.sweep import sweep


@dataclass(frozen=True, slots=True)
class Entry:
    """One study."""

    question: str
    """What it answers, for --help."""
    run: Callable[[Study], Awaitable[None]]


CATALOGUE: Final[Mapping[str, Entry]] = {
    "baseline": Entry("one request at a time, ten times: the two figures to compare with", experiments.baseline),
    "uniform": Entry("the same requests, one, four and eight at a time", experiments.uniform),
    "mixed": Entry("eight at once, answers 1 to 5: who waits for whom", crowds.mixed),
    "burst": Entry("fifty at once: queue, memory, and the last of them", crowds.burst),
    "myths": Entry("four things that people say of batching, each put to a pair of settings", myths),
    "sweep": Entry("output against concurrency; the gain of continuous against unequal answers", sweep),
    "parameters": Entry("each parameter too low, right and too high; static batches that run unfilled", parameters),
    "ladder": Entry("the tuning order: one alone, more at once, mixed lengths", ladder),
}
