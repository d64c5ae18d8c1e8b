"""The tuning order, as a guided procedure: one request alone, then more at once while memory and the time between
tokens are watched, then mixed lengths while the tail is. Never everything at its maximum from the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chairlift.core.config import KVCapacity, SchedulerConfig
from chairlift.core.extremes import find_extremes
from chairlift.lab.measured import Measured
from chairlift.lab.runs.bench import ENGINE
from chairlift.lab.studies import verdicts
from chairlift.lab.studies.folder import Cell, Column, Verdict
from chairlift.lab.studies.study import Study
from chairlift.lab.studies.sweep import BEND_WORDS, bend, concurrency_settings
from chairlift.lab.studies.words import NONE, number, seconds
from chairlift.records.metrics import NOT_OBSERVABLE
from chairlift.records.reader import Run

_BETWEEN: Final = "time_between_tokens"
_BETTER: Final = 0.8
"""A smaller step is kept where the tail gets at least this much shorter."""


async def ladder(study: Study) -> None:
    """The three rungs, and what to set.

    Raises:
        ConfigError, Interrupted: as Study.run.
    """
    runs = await _climb(study)
    chosen = _chosen(study, runs)
    if chosen is None:
        study.sentence("Nothing was answered; see the failures.")
        study.conclude(verdicts.refused(next(iter(runs.values()))))
        return
    await _mixed_lengths(study, chosen)


async def _climb(study: Study) -> dict[int, Measured]:
    """One alone, then two, four and so on until something binds."""
    largest = 32 if study.quick else 64
    prompt, output = (64, 24) if study.quick else (128, 64)
    settings = concurrency_settings(study, largest)
    study.subject.prepare([study.settings | settings])
    runs: dict[int, Measured] = {}
    rows: list[tuple[Cell, ...]] = []
    users = 1
    while users <= largest:
        load = f"name={users}-users arrivals=closed arrivals.users={users} prompt={prompt} output={output} "
        run = runs[users] = await study.run(f"{users} at a time", f"{load} count={max(3, 2 * users)}", settings)
        rows.append(_climb_row(study, users, run, runs.get(users // 2)))
        if users == 1:
            _warn_of_extremes(study, run)
        if _stops(runs):
            break
        users *= 2
    study.table(
        "climb",
        f"Rungs 1 and 2: prompts of {prompt} tokens, answers of {output}; more and more at a time.",
        (
            Column("users"),
            Column("rate", "tokens/s", "output"),
            Column("first", "s", "first token p50"),
            Column("between", "s", "between tokens p50"),
            Column("tail", "s", "between tokens p99"),
            Column("kv", "share", "KV held at most"),
            Column("binds", "", "what binds"),
        ),
        rows,
        x="users",
        y="rate",
    )
    return runs


def _climb_row(study: Study, users: int, run: Measured, before: Measured | None) -> tuple[Cell, ...]:
    fewer = None if before is None else (before, users // 2, users)
    binds = NONE if fewer is None else verdicts.binding_constraint(run, study.config(run), fewer)
    return (
        users,
        run.tokens_per_second,
        run.figure("ttft_from_schedule", 50),
        run.figure(_BETWEEN, 50),
        run.figure(_BETWEEN, 99),
        run.pressure.kv_share,
        binds.split(":", maxsplit=1)[0],
    )


def _stops(runs: Mapping[int, Measured]) -> bool:
    """Memory is full, somebody was preempted or failed, or the curve has bent twice over."""
    last = list(runs.values())[-1]
    if last.failed or not last.tokens_per_second:
        return True
    if last.pressure.preemptions or (last.pressure.kv_share or 0.0) >= verdicts.FULL:
        return True
    bent = bend({users: run.tokens_per_second for users, run in runs.items()})
    return bent is not None and max(runs) > bent * 2


def _warn_of_extremes(study: Study, run: Measured) -> None:
    """Maximum concurrency together with maximum length is warned about before anything is raised."""
    config = study.subject.config(study.settings)
    folder = run.folder / ENGINE
    if config is None or not folder.is_dir():
        return
    extremes = find_extremes(config, KVCapacity(**Run(folder).manifest.capacity))
    if extremes is not None:
        study.note(str(extremes))


def _chosen(study: Study, runs: Mapping[int, Measured]) -> int | None:
    """How many at once: up to the bend, or as many as memory held. Says why."""
    study.record.definitions["bend"] = BEND_WORDS
    good = {users: run for users, run in runs.items() if run.tokens_per_second and not run.failed}
    if not good:
        return None
    bent = bend({users: run.tokens_per_second for users, run in good.items()})
    counts = list(good)
    short = [users for users, run in good.items() if run.pressure.preemptions]
    users = bent if bent is not None else counts[-1]
    if short and short[0] <= users:
        users = max(1, short[0] // 2)
        why = f"memory: with {short[0]} requests were preempted"
    elif bent is not None:
        following = counts[counts.index(bent) + 1]
        gain = (good[following].tokens_per_second or 0) / (good[bent].tokens_per_second or 1)
        why = f"the bend: {following} give {number(gain)} times the output of {bent} and no more"
    else:
        why = "the end of the ladder: output still rises, so more may pay"
    alone, there = good[counts[0]], good[users]
    study.sentence(
        f"Rung 1: alone, {number(alone.tokens_per_second)} tokens/s and {seconds(alone.figure(_BETWEEN, 50))} between "
        "tokens: nothing that follows is faster for one reader."
    )
    study.sentence(
        f"Rung 2: {users} at once, for {why}. There, {number(there.tokens_per_second)} tokens/s, "
        f"{seconds(there.figure(_BETWEEN, 50))} between tokens (p50) and {seconds(there.figure(_BETWEEN, 99))} (p99)."
    )
    config = study.subject.config(study.settings)
    if config is not None and config.policy == "continuous" and config.max_num_seqs != users:
        study.conclude([_raise_or_lower(config, users, there, why)])
    return users


def _raise_or_lower(config: SchedulerConfig, users: int, there: Measured, why: str) -> Verdict:
    word = "more" if users > config.max_num_seqs else "fewer"
    return Verdict(
        f"Let {word} sequences run at once: {users} is where this model on this machine stops gaining by more.",
        f"{why}; {number(there.tokens_per_second)} output tokens/s and {seconds(there.figure(_BETWEEN, 99))} between "
        "tokens at p99 there",
        "--max-num-seqs",
        config.max_num_seqs,
        users,
    )


async def _mixed_lengths(study: Study, users: int) -> None:
    """Rung 3: short and long prompts mixed, and a smaller step where the tail asks for it."""
    long, output = (384, 24) if study.quick else (1024, 64)
    load = (
        f"name=mixed-lengths arrivals=closed arrivals.users={users} count={3 * users} prompt=bimodal prompt.short=32 "
        f"prompt.long={long} prompt.ratio=3:1 output=exponential output.mean={output} output.cap={4 * output}"
    )
    config = study.subject.config(study.settings)
    if config is None or not study.subject.settable:
        run = await study.run("mixed lengths", load)
        _say_tail(study, run, None)
        study.conclude([*verdicts.prefill_stalls(run, None), *verdicts.refused(run)])
        return
    budgets = [max(users, config.max_num_batched_tokens)]
    runs: dict[int, Measured] = {}
    rows: list[tuple[Cell, ...]] = []
    while budgets:
        budget = budgets.pop()
        settings = {"policy": "continuous", "max_num_seqs": users, "max_num_batched_tokens": budget}
        run = runs[budget] = await study.run(f"mixed lengths, steps of {budget}", load, settings)
        first = run.figure("ttft_from_schedule", 99)
        between = (run.figure(_BETWEEN, 50), run.figure(_BETWEEN, 99))
        rows.append((budget, run.tokens_per_second, first, *between, run.pressure.kv_share))
        smaller = max(users, budget // 4, 16)
        if len(runs) < 3 and smaller < budget and any(verdicts.prefill_stalls(run, study.config(run))):
            budgets.append(smaller)
    study.table(
        "tail",
        f"Rung 3: {users} at a time, prompts of 32 and {long} tokens, answers of {output} on average.",
        (
            Column("tokens", "", "--max-num-batched-tokens"),
            Column("rate", "tokens/s", "output"),
            Column("first", "s", "first token p99"),
            Column("between", "s", "between tokens p50"),
            Column("tail", "s", "between tokens p99"),
            Column("kv", "share", "KV held at most"),
        ),
        rows,
        x="tokens",
        y="tail",
    )
    _say_tail(study, runs[max(runs)], runs)
    best = _best_step(runs)
    if best != max(runs) or best != config.max_num_batched_tokens:
        study.conclude([_smaller_step(config, runs, best)])
    last = runs[best]
    study.conclude([*verdicts.short_of_memory(last, study.config(last)), *verdicts.refused(last)])


def _best_step(runs: Mapping[int, Measured]) -> int:
    """The largest step but where a smaller one shortens the tail by a fifth and more."""
    best = max(runs)
    for budget in sorted(runs, reverse=True)[1:]:
        before, after = runs[best].figure(_BETWEEN, 99), runs[budget].figure(_BETWEEN, 99)
        if before is not None and after is not None and after <= _BETTER * before:
            best = budget
    return best


def _smaller_step(config: SchedulerConfig, runs: Mapping[int, Measured], best: int) -> Verdict:
    there, before = runs[best], runs[max(runs)]
    return Verdict(
        f"Let a step compute {best} tokens at most: long prompts then hold up answers in progress less.",
        f"between tokens p99 {seconds(there.figure(_BETWEEN, 99))} instead of {seconds(before.figure(_BETWEEN, 99))}; "
        f"first token p99 {seconds(there.figure('ttft_from_schedule', 99))} instead of "
        f"{seconds(before.figure('ttft_from_schedule', 99))}; {number(there.tokens_per_second)} output tokens/s "
        f"instead of {number(before.tokens_per_second)}",
        "--max-num-batched-tokens",
        config.max_num_batched_tokens,
        best,
    )


def _say_tail(study: Study, run: Measured, runs: Mapping[int, Measured] | None) -> None:
    middle, tail = run.figure(_BETWEEN, 50), run.figure(_BETWEEN, 99)
    if middle is None or tail is None:
        text = f"Rung 3: with mixed lengths the time between tokens is {NOT_OBSERVABLE}"
    else:
        text = (
            f"Rung 3: with mixed lengths the time between tokens is {seconds(middle)} (p50) and {seconds(tail)} (p99)"
        )
        text += f", {number(tail / middle)} times as long"
    study.sentence(f"{text}; {run.pressure}.")
    if runs is not None and len(runs) > 1:
        steps = [f"{budget}: {seconds(one.figure(_BETWEEN, 99))}" for budget, one in runs.items()]
        study.sentence(f"The p99 between tokens by --max-num-batched-tokens: {', '.join(steps)}.")
