"""Measures probes in rounds, so that a machine that is slow for a while is slow for all of them."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from chairlift.core.errors import ConfigError
from chairlift.core.request import Nanoseconds
from chairlift.devices.samples import Sample
from chairlift.lab.calibration.probes import JITTER, jittered
from chairlift.lab.calibration.steps import Probe, StepTimer

BURST: Final = 4
"""A decode is measured as it runs, after others like it: so many in a row, of which the first does not count."""
ROUNDS: Final = 2 * JITTER + 1
"""After so many rounds prompts were on average as long as they are called."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured, and what was not."""

    samples: tuple[Sample, ...]
    skipped: tuple[Probe, ...]
    """The pool does not hold them."""
    settling: tuple[Nanoseconds, ...] = ()
    """By how much the first decode of each row of decodes took longer than those after it."""


def measure(
    timer: StepTimer,
    wanted: Sequence[Probe],
    *,
    rounds: int = ROUNDS,
    first: int = 0,
    seed: int = 0,
    show: Callable[[int, int], None] | None = None,
) -> Measured:
    """Measure every probe once a round, in an order that is drawn anew each time.

    Args:
        timer: of the runner.
        wanted: what to measure.
        rounds: repeats of each.
        first: the number of the first of them. Before round 0 goes one that counts for nothing; measuring goes on with
            the number that comes next.
        seed: of the orders.
        show: is told how many steps of how many were made.

    Raises:
        ConfigError: fewer than one round, or the pool holds none of them.
        StepFailed: the device failed.
    """
    if rounds < 1:
        raise ConfigError(f"--rounds is {rounds}; it must be at least 1.")
    fitting = [probe for probe in wanted if all(timer.fits(jittered(probe, turn)) for turn in range(ROUNDS))]
    if not fitting:
        raise ConfigError("the KV pool holds none of the steps to be measured: raise --num-kv-blocks.")
    times: dict[Probe, list[Nanoseconds]] = {probe: [] for probe in fitting}
    settling: list[Nanoseconds] = []
    turns = range(first or -1, first + rounds)
    order, done, total = list(fitting), 0, len(turns) * len(fitting)
    for turn in turns:
        random.Random(f"{seed} {turn}").shuffle(order)
        for probe in order:
            # The round that does not count has sizes that do not come again.
            found = _in_a_row(timer, probe if turn < 0 else jittered(probe, turn))
            done += 1
            if turn >= 0:
                settled = round(statistics.median(found[1:] or found))
                times[probe].append(settled)
                settling += [found[0] - settled] if len(found) > 1 else []
            if show is not None:
                show(done, total)
    samples = tuple(Sample(probe.shape(), tuple(times[probe]), probe.term) for probe in fitting)
    return Measured(samples, tuple(probe for probe in wanted if probe not in times), tuple(settling))


def joined(parts: Sequence[Measured]) -> Measured:
    """What was measured in several goes, of the same probes."""
    samples = (
        replace(several[0], times=tuple(time for one in several for time in one.times))
        for several in zip(*(part.samples for part in parts), strict=True)
    )
    settling = tuple(time for part in parts for time in part.settling)
    return Measured(tuple(samples), parts[0].skipped, settling)


def _in_a_row(timer: StepTimer, probe: Probe) -> list[Nanoseconds]:
    """A prompt comes after steps of other shapes; decodes come in rows."""
    return [timer.time(probe) for _ in range(BURST if probe.term == "decode" else 1)]
