"""Many at once: eight with unequal answers, and a burst of fifty.

Where settings can be changed, each runs under all three policies, taking turns for three rounds; a server runs as it
is.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from chairlift.core.config import POLICIES
from chairlift.core.errors import OutOfDeviceMemory
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.measured import Measured
from chairlift.lab.statistics import METHOD
from chairlift.lab.studies import verdicts
from chairlift.lab.studies.folder import Cell, Column
from chairlift.lab.studies.study import Study, policy_settings, take_turns
from chairlift.lab.studies.sweep import gain_over
from chairlift.lab.studies.words import listed, percent, seconds
from chairlift.lab.subjects import Settings

_TTFT, _E2E, _BETWEEN = "ttft_from_schedule", "end_to_end_from_schedule", "time_between_tokens"
_ROUNDS: Final = 3
_SIZE: Final = 8
"""Of closed batches."""

Runs = Mapping[str, Sequence[Measured]]
"""By policy, a run for each round."""


async def mixed(study: Study) -> None:
    """Eight at once with similar prompts, answers 1 to 5: who waits for whom.

    Raises:
        ConfigError, Interrupted: as Study.run.
    """
    short, long = (16, 80) if study.quick else (40, 200)
    load = (
        "name=one-to-five arrivals=burst arrivals.size=8 prompt=uniform prompt.min=48 prompt.max=64 output=bimodal "
        f"output.short={short} output.long={long} output.ratio=1:1 output.order=cycle"
    )
    study.at_most(512)
    runs = await _under_policies(study, load)
    ends = {name: _finish_times(several) for name, several in runs.items()}
    study.table(
        "finish",
        f"Eight requests at once, four answers of {short} tokens and four of {long}: when each was answered, mean of "
        "the rounds.",
        (Column("policy"), Column("request", "", "in order of their ends"), Column("end", "s")),
        [(name, place, end) for name, times in ends.items() for place, end in enumerate(times, start=1)],
        x="request",
        y="end",
        series="policy",
    )
    _usage_table(study, runs)
    for name, several in runs.items():
        times = ends[name]
        if not times:
            continue
        text = f"{name}: the first four are answered after {seconds(statistics.fmean(times[: len(times) // 2]))} on "
        text += f"average, all after {seconds(times[-1])}"
        useful = _mean(several, lambda run: None if run.engine is None else run.engine.useful)
        study.sentence(text + ("." if useful is None else f"; {percent(useful)} of the tokens computed are useful."))
    _compare(study, runs)
    own = study.own_policy()
    for name, several in runs.items():
        run = several[-1]
        for verdict in verdicts.outgrown(run, study.config(run)):
            if name == own:
                study.conclude([verdict])
            else:
                study.sentence(f"{verdict.verdict} Seen: {verdict.evidence}.")
        study.conclude(verdicts.refused(run))


async def burst(study: Study) -> None:
    """Fifty at once: the queue, the memory, and the last of them.

    Raises:
        ConfigError, Interrupted: as Study.run.
    """
    prompt, output = (32, 16) if study.quick else (96, 48)
    load = (
        f"name=fifty arrivals=burst arrivals.size=50 prompt={prompt} output=uniform output.min={output // 2} "
        f"output.max={output * 3 // 2}"
    )
    try:
        runs = await _under_policies(study, load)
    except OutOfDeviceMemory as error:
        study.sentence("The burst was broken off: the device ran out of memory.")
        study.conclude([verdicts.out_of_memory(error, study.subject.given | study.settings)])
        return
    _usage_table(study, runs)
    for name, several in runs.items():
        answered = sum(run.answered for run in several)
        middle, tail = _figure(several, _TTFT, 50), _figure(several, _TTFT, 99)
        study.sentence(
            f"{name}: {answered} of {50 * len(several)} answered; first token p50 {seconds(middle)}, p99 "
            f"{seconds(tail)}; end to end p99 {seconds(_figure(several, _E2E, 99))}; {several[-1].pressure}."
        )
        run = several[-1]
        config = study.config(run)
        study.conclude([*verdicts.prefill_stalls(run, config), *verdicts.short_of_memory(run, config)])
        study.conclude(verdicts.refused(run))
    _compare(study, runs)


async def _under_policies(study: Study, load: str) -> Runs:
    """The load under each policy, or once where settings cannot be changed."""
    if not study.subject.settable:
        study.note(
            f"{study.subject.name} is a server with settings of its own: it ran as it is. Give the model itself as "
            "TARGET to see all three policies."
        )
        run = await study.run("as it is", load)
        return {run.policy or "as it is": [run]}
    several: dict[str, Settings] = {
        policy: policy_settings(policy, None if policy == "continuous" else _SIZE) for policy in POLICIES
    }
    return await take_turns(study, load_from_pairs(load.split()), several, _ROUNDS)


def _compare(study: Study, runs: Runs) -> None:
    """Output of continuous over the others', with its interval."""
    if "continuous" not in runs or len(runs) == 1:
        return
    for name, several in runs.items():
        gain = None if name == "continuous" else gain_over(runs["continuous"], several)
        if gain is not None:
            noise = ": a difference inside the noise" if gain.finding == "inside the noise" else ""
            study.sentence(f"Output tokens/s of continuous over {name}: {gain}{noise}.")
    study.record.definitions["ratios"] = METHOD


def _finish_times(several: Sequence[Measured]) -> list[float]:
    """When the first, second, ... request was answered, mean of the rounds; empty where not all were in each."""
    rounds = [run.finish_times() for run in several]
    if len({len(times) for times in rounds}) != 1:
        return []
    return [statistics.fmean(times) for times in zip(*rounds, strict=True)]


def _usage_table(study: Study, runs: Runs) -> None:
    title = "The load as the target ran it."
    if len(runs) > 1:
        title = f"The load under {listed(list(runs))}: means of {_ROUNDS} rounds, least and most output of them."
    study.table(
        "policies",
        title,
        (
            Column("policy"),
            Column("at_once", "", "at once"),
            Column("rate", "tokens/s", "output"),
            Column("least", "tokens/s", "least"),
            Column("most", "tokens/s", "most"),
            Column("first", "s", "first token p50"),
            Column("end_p50", "s", "end to end p50"),
            Column("end_p99", "s", "p99"),
            Column("between_p99", "s", "between tokens p99"),
            Column("useful", "share"),
            Column("waiting", "", "longest queue"),
            Column("held", "share", "KV held at most"),
        ),
        [_usage_row(study, name, several) for name, several in runs.items()],
        x="policy",
        y="rate",
        low="least",
        high="most",
    )
    if any(not run.distribution(_BETWEEN).observable for several in runs.values() for run in several):
        study.note("a dash between tokens: not observable, since results leave together at the end of a batch.")


def _usage_row(study: Study, name: str, several: Sequence[Measured]) -> tuple[Cell, ...]:
    config = study.config(several[0])
    rates = [run.tokens_per_second for run in several]
    known = [rate for rate in rates if rate is not None]
    return (
        name,
        None if config is None else config.max_rows,
        _mean(several, lambda run: run.tokens_per_second),
        min(known, default=None),
        max(known, default=None),
        _figure(several, _TTFT, 50),
        _figure(several, _E2E, 50),
        _figure(several, _E2E, 99),
        _figure(several, _BETWEEN, 99),
        _mean(several, lambda run: None if run.engine is None else run.engine.useful),
        max((run.pressure.waiting for run in several if run.pressure.waiting is not None), default=None),
        max((run.pressure.kv_share for run in several if run.pressure.kv_share is not None), default=None),
    )


def _figure(several: Sequence[Measured], metric: str, which: float) -> float | None:
    """A client's figure, mean of the rounds."""
    return _mean(several, lambda run: run.figure(metric, which))


def _mean(several: Sequence[Measured], value: Callable[[Measured], float | None]) -> float | None:
    """Over the rounds; None where one has none."""
    found = [value(run) for run in several]
    known = [one for one in found if one is not None]
    return statistics.fmean(known) if known and len(known) == len(found) else None
