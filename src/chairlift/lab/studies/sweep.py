"""Two curves: output against concurrency, with its bend; and what continuous batching gains against how unequal answers
are.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chairlift.core.config import POLICIES, PolicyName
from chairlift.core.errors import ConfigError
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.measured import Measured
from chairlift.lab.statistics import METHOD, Ratio, paired_ratio
from chairlift.lab.studies.folder import Cell, Column
from chairlift.lab.studies.study import Study, policy_settings, take_turns
from chairlift.lab.studies.verdicts import binding_constraint, elasticity, starved
from chairlift.lab.studies.words import number, seconds

BEND: Final = 0.5
"""The curve bends where a further user adds less than half of what it would if output rose as users do."""
BEND_WORDS: Final = (
    "The bend is the last concurrency before the elasticity of output (log of the outputs' ratio over log of the "
    f"users') falls below {BEND:g}."
)


async def sweep(study: Study) -> None:
    """Both curves.

    Raises:
        ConfigError, Interrupted: as Study.run.
    """
    study.at_most(256)
    await concurrency(study)
    if study.subject.settable:
        await variance(study)
    else:
        study.note(
            f"{study.subject.name} is a server: its policy cannot be changed, so the gain of continuous batching was "
            "not measured. Give the model itself as TARGET for that."
        )


async def concurrency(study: Study, most: int | None = None) -> dict[int, Measured]:
    """One to many users with one request at a time each.

    Args:
        study: at work.
        most: the largest number of users.

    Returns:
        The run at each concurrency.

    Raises:
        ConfigError, Interrupted: as Study.run.
    """
    largest = most or (32 if study.quick else 64)
    users = [count for count in (1, 2, 4, 8, 16, 32, 64, 128) if count <= largest]
    prompt, output, rounds = (64, 24, 2) if study.quick else (64, 64, 3)
    settings = concurrency_settings(study, users[-1])
    study.subject.prepare([study.settings | settings])
    runs: dict[int, Measured] = {}
    for count in users:
        load = f"name={count}-users arrivals=closed arrivals.users={count} prompt={prompt} output={output} "
        runs[count] = await study.run(f"{count} users", f"{load} count={max(rounds * count, 3)}", settings)
    bent = bend({count: run.tokens_per_second for count, run in runs.items()})
    study.table(
        "concurrency",
        f"Output and time between tokens against users with one request at a time each; prompts of {prompt} tokens, "
        f"answers of {output}. GFLOP/s and GB/s of the steps with prompt tokens (prefill) and without (decode).",
        (
            Column("users"),
            Column("rate", "tokens/s", "output"),
            Column("between", "s", "between tokens p50"),
            Column("tail", "s", "between tokens p99"),
            Column("first", "s", "first token p50"),
            Column("prefill_gflops", "GFLOP/s", "prefill"),
            Column("prefill_gbs", "GB/s", "prefill"),
            Column("decode_gflops", "GFLOP/s", "decode"),
            Column("decode_gbs", "GB/s", "decode"),
            Column("bend", "", "bend"),
        ),
        [(count, *_curve_cells(run), "<- here" if count == bent else "") for count, run in runs.items()],
        x="users",
        y="rate",
        below="between",
        mark="bend",
    )
    _say_bend(study, runs, bent)
    study.record.definitions["bend"] = BEND_WORDS
    return runs


def concurrency_settings(study: Study, users: int) -> dict[str, object]:
    """Continuous batching with room for all users: the curve is the device's, not a limit's."""
    config = study.subject.config(study.settings)
    if config is None or not study.subject.settable:
        return {}
    budget = max(config.max_num_batched_tokens, users)
    return {"policy": "continuous", "max_num_seqs": max(users, config.max_num_seqs), "max_num_batched_tokens": budget}


def bend(rates: Mapping[int, float | None]) -> int | None:
    """See BEND_WORDS; None where the curve has not bent, or has a point without a rate.

    Args:
        rates: output tokens/s by users, in rising order.
    """
    points = list(rates.items())
    for (few, low), (many, high) in itertools.pairwise(points):
        if not low or not high:
            return None
        if elasticity(low, high, few, many) < BEND:
            return few
    return None


def _curve_cells(run: Measured) -> tuple[Cell, ...]:
    engine = run.engine
    cells: tuple[Cell, ...] = (
        run.tokens_per_second,
        run.figure("time_between_tokens", 50),
        run.figure("time_between_tokens", 99),
        run.figure("ttft_from_schedule", 50),
    )
    if engine is None:
        return (*cells, None, None, None, None)
    prefill, decode = engine.prefill, engine.decode
    return (*cells, prefill.gflops, prefill.gbs, decode.gflops, decode.gbs)


def _say_bend(study: Study, runs: Mapping[int, Measured], bent: int | None) -> None:
    counts = list(runs)
    first, last = runs[counts[0]], runs[counts[-1]]
    if not first.tokens_per_second or not last.tokens_per_second:
        return
    study.sentence(
        f"From {counts[0]} to {counts[-1]} users output rises "
        f"{number(last.tokens_per_second / first.tokens_per_second)} times, from {number(first.tokens_per_second)} to "
        f"{number(last.tokens_per_second)} tokens/s; the time between tokens goes from "
        f"{seconds(first.figure('time_between_tokens', 50))} to {seconds(last.figure('time_between_tokens', 50))} "
        "(p50)."
    )
    if bent is None:
        study.sentence(f"The curve has not bent up to {counts[-1]} users: more would still pay.")
        return
    following = counts[counts.index(bent) + 1]
    before, after = runs[bent], runs[following]
    study.sentence(
        f"It bends at {bent}: going on to {following} users multiplies output by "
        f"{number((after.tokens_per_second or 0) / (before.tokens_per_second or 1))} and the time between tokens by "
        f"{_times(after.figure('time_between_tokens', 50), before.figure('time_between_tokens', 50))}. There, "
        f"{binding_constraint(after, study.config(after))}{starved(before, after)}."
    )
    for count, run in ((counts[0], first), (counts[-1], last)):
        engine = run.engine
        if engine is not None and engine.decode.gbs is not None and engine.prefill.gflops is not None:
            study.sentence(
                f"With {count} users decode moves {number(engine.decode.gbs)} GB/s and computes "
                f"{number(engine.decode.gflops)} GFLOP/s; prefill {number(engine.prefill.gbs)} GB/s and "
                f"{number(engine.prefill.gflops)} GFLOP/s."
            )


def _times(after: float | None, before: float | None) -> str:
    return number(after / before) if after and before else "an unknown factor"


@dataclass(frozen=True, slots=True)
class Shape:
    """Answers of one mean, and how unequal."""

    name: str
    pairs: str


def shapes(mean: int) -> tuple[Shape, ...]:
    """Distributions of answers with this mean (a multiple of 12), from equal to very unequal."""
    low, high, long = mean // 2, mean + mean // 2, mean * 16 // 3
    return (
        Shape("equal", f"output={mean}"),
        Shape("half to one and a half", f"output=uniform output.min={low} output.max={high}"),
        Shape("1:5", f"output=bimodal output.short={mean // 3} output.long={mean * 5 // 3} output.ratio=1:1"),
        Shape(
            "7 short, 1 long",
            f"output=bimodal output.short={(8 * mean - long) // 7} output.long={long} output.ratio=7:1",
        ),
    )


async def variance(study: Study) -> None:
    """What continuous gains over static and dynamic with equal slots, against the variance of output length.

    Raises:
        ConfigError, Interrupted: as Study.run.
    """
    # Enough requests that the last long answer, which nobody fills up beside, weighs little.
    mean, requests, slots, rounds = (12, 48, 4, 1) if study.quick else (24, 64, 4, 3)
    settings = {policy: policy_settings(policy, slots) for policy in POLICIES}
    study.subject.prepare([study.settings | one for one in settings.values()])
    rows: list[tuple[Cell, ...]] = []
    gains: dict[PolicyName, list[tuple[float, Ratio]]] = {"static": [], "dynamic": []}
    for shape in shapes(mean):
        pairs = f"name=answers arrivals=burst arrivals.size={requests} prompt=32 {shape.pairs}"
        load = load_from_pairs(pairs.split())
        runs = await take_turns(
            study, load, {f"{shape.name}, {policy}": one for policy, one in settings.items()}, rounds
        )
        ours = runs[f"{shape.name}, continuous"]
        cv2 = statistics.fmean(run.load["description"]["output"]["cv2"] for run in ours)
        for other, several in gains.items():
            gain = gain_over(ours, runs[f"{shape.name}, {other}"])
            if gain is None:
                raise ConfigError(f"nothing was answered under {other} with answers {shape.name}: see the failures.")
            several.append((cv2, gain))
            rows.append((shape.name, cv2, other, gain.middle, gain.low, gain.high, gain.finding))
    study.table(
        "variance",
        f"Output of continuous over that of a closed policy, {slots} slots for each, {requests} requests at once in "
        f"random order, answers of {mean} tokens on average. CV² is the variance of output length over its mean "
        f"squared. {METHOD}",
        (
            Column("answers"),
            Column("cv2", "", "CV²"),
            Column("over"),
            Column("gain", "", "continuous / closed"),
            Column("low", "", "lower end"),
            Column("high", "", "upper end"),
            Column("finding"),
        ),
        rows,
        x="cv2",
        y="gain",
        series="over",
        low="low",
        high="high",
    )
    for other, several in gains.items():
        least, most = several[0], several[-1]
        study.sentence(
            f"Output of continuous over that of {other}: {least[1]} with equal answers, {most[1]} with a CV² of "
            f"{most[0]:.2f}."
        )
    study.sentence(rising([ratio.middle for _, ratio in gains["static"]]))
    if rounds == 1:
        study.note("one round each: the gains have no interval. Without --quick there are three.")


def rising(values: Sequence[float]) -> str:
    """Whether the gain follows the variance, as the figures have it."""
    if values[-1] > 1.1 * values[0]:
        return (
            "The gain follows the variance of output length: measure it on lengths like your own, since a benchmark of "
            "one length hides it."
        )
    return (
        "The gain did not follow the variance of output length here: something else decides, such as a device whose "
        "steps get slower with every row."
    )


def gain_over(ours: Sequence[Measured], theirs: Sequence[Measured]) -> Ratio | None:
    """Output tokens a second of one over the other, paired; None where one of them has none."""
    pairs = [(one.tokens_per_second, other.tokens_per_second) for one, other in zip(ours, theirs, strict=True)]
    known = [(one, other) for one, other in pairs if one and other]
    if not known or len(known) < len(pairs):
        return None
    return paired_ratio([one for one, _ in known], [other for _, other in known])
