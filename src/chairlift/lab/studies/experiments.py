"""The first measurements of any target, a server too: one request at a time, and then several."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from chairlift.lab.measured import Measured
from chairlift.lab.statistics import mean_interval
from chairlift.lab.studies import verdicts
from chairlift.lab.studies.folder import Column, Verdict
from chairlift.lab.studies.study import Study
from chairlift.lab.studies.words import number, seconds

_TTFT, _BETWEEN = "ttft_from_schedule", "time_between_tokens"
_UNEVEN = 1.5
"""Largest over median time to first token of equal requests on an idle machine: beyond, it is not quiet."""


async def baseline(study: Study) -> None:
    """One request at a time, ten times: what every other figure is compared with.

    Raises:
        ConfigError, Interrupted: as Study.run.
    """
    prompt, output = (64, 32) if study.quick else (256, 64)
    study.at_most(512)
    run = await study.run("alone", f"name=alone {_users(1)} prompt={prompt} output={output} count=11 warmup_requests=1")
    traces = sorted((trace for trace in run.result.traces if trace.ok and not trace.warmup), key=lambda t: t.index)
    firsts = [(trace.first_content - trace.scheduled) / 1e9 for trace in traces if trace.first_content is not None]
    study.table(
        "requests",
        f"One request at a time: prompts of {prompt} tokens, answers of {output}. One more went first, uncounted.",
        (Column("request"), Column("ttft", "s", "first token"), Column("end", "s", "end to end")),
        [
            (number_, first, (trace.end - trace.scheduled) / 1e9)
            for number_, (trace, first) in enumerate(zip(traces, firsts, strict=True), start=1)
        ],
        x="request",
        y="ttft",
    )
    between = run.figure(_BETWEEN, 50)
    study.sentence(
        f"Alone, a request waits {seconds(run.figure(_TTFT, 50))} for its first token (p50) and "
        f"{seconds(between)} for each further one: {number(1 / between if between else None)} tokens/s for one reader."
    )
    if firsts:
        mean = mean_interval(firsts)
        study.sentence(
            f"Over {mean.count} requests the mean to the first token is {seconds(mean.middle)}, between "
            f"{seconds(mean.low)} and {seconds(mean.high)} at 95% (Student's t)."
        )
    engine = run.engine
    if engine is not None and engine.decode.gbs is not None and engine.prefill.gflops is not None:
        study.sentence(
            f"Prefill computes at {number(engine.prefill.gflops)} GFLOP/s and moves {number(engine.prefill.gbs)} GB/s; "
            f"decode computes at {number(engine.decode.gflops)} GFLOP/s and moves {number(engine.decode.gbs)} GB/s: a "
            "prompt is computed in parallel, and a single decode reads all weights for one token."
        )
    study.sentence(
        "Keep these two figures: no load can be answered faster, and what more users wait on top of them is queueing "
        "and sharing."
    )
    study.conclude([*_uneven(firsts), *verdicts.refused(run)])


def _uneven(firsts: Sequence[float]) -> Iterator[Verdict]:
    """Equal requests on an idle target take equal time."""
    if len(firsts) > 2 and max(firsts) > _UNEVEN * statistics.median(firsts):
        yield Verdict(
            "Equal requests did not take equal time: something else runs on the machine, or its clock rate changes. "
            "Figures of one run are worth little here; compare with repeats only.",
            f"time to first token from {seconds(min(firsts))} to {seconds(max(firsts))}, median "
            f"{seconds(statistics.median(firsts))}",
        )


async def uniform(study: Study) -> None:
    """Even concurrency: the same requests, one, four and eight at a time.

    Raises:
        ConfigError, Interrupted: as Study.run.
    """
    prompt, output = (64, 32) if study.quick else (128, 64)
    rounds = 2 if study.quick else 4
    study.at_most(512)
    runs: dict[int, Measured] = {}
    for users in (1, 4, 8):
        load = f"name=even-{users} {_users(users)} prompt={prompt} output={output} count={rounds * users}"
        settings = _as_they_come(study, users)
        runs[users] = await study.run(f"{users} at a time", load, settings)
    study.table(
        "concurrency",
        f"Even load: prompts of {prompt} tokens, answers of {output}, so many users with one request at a time each.",
        (
            Column("users"),
            Column("rate", "tokens/s", "output"),
            Column("first", "s", "first token p50"),
            Column("between", "s", "between tokens p50"),
            Column("tail", "s", "between tokens p99"),
            Column("rows", "", "rows a step"),
            Column("busy", "share"),
        ),
        [
            (
                users,
                run.tokens_per_second,
                run.figure(_TTFT, 50),
                run.figure(_BETWEEN, 50),
                run.figure(_BETWEEN, 99),
                None if run.engine is None else run.engine.rows_mean,
                None if run.engine is None else run.engine.busy,
            )
            for users, run in runs.items()
        ],
        x="users",
        y="rate",
    )
    one, most = runs[1], runs[8]
    if one.tokens_per_second and most.tokens_per_second:
        study.sentence(
            f"Eight users get {number(most.tokens_per_second / one.tokens_per_second)} times the output of one, "
            f"{number(most.tokens_per_second)} against {number(one.tokens_per_second)} tokens/s; each of them waits "
            f"{seconds(most.figure(_BETWEEN, 50))} between tokens instead of {seconds(one.figure(_BETWEEN, 50))}."
        )
    study.sentence(f"With eight, {verdicts.binding_constraint(most, study.config(most), (runs[4], 4, 8))}.")
    study.conclude(
        [
            *verdicts.no_rise(one, most, 8, study.config(most)),
            *verdicts.short_of_memory(most, study.config(most)),
            *verdicts.refused(most),
        ]
    )


def _users(count: int) -> str:
    return f"arrivals=closed arrivals.users={count}"


def _as_they_come(study: Study, users: int) -> dict[str, object]:
    """Where a static batch would be larger than the users there are, it is as large as they are."""
    config = study.subject.config(study.settings)
    if config is not None and config.policy == "static" and config.max_wait is None and config.batch_size > users:
        study.note(f"with {users} users --batch-size is {users}: a larger static batch would never fill.")
        return {"batch_size": users}
    return {}
