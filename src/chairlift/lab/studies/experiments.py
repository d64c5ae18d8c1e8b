"""The first measurements of any target: one request at a time, an even load, eight at once, a burst of fifty.

Each runs on whatever is there, a server too; where settings can be changed, the last two run under all three policies.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from chairlift.core.config import POLICIES
from chairlift.lab.measured import Measured
from chairlift.lab.studies import verdicts
from chairlift.lab.studies.folder import Column, Verdict
from chairlift.lab.studies.study import Study, policy_settings
from chairlift.lab.studies.words import listed, number, percent, seconds

_TTFT, _E2E, _BETWEEN = "ttft_from_schedule", "end_to_end_from_schedule", "time_between_tokens"
_UNEVEN = 1.5
"""Largest over median time to first token of equal requests on an idle machine: beyond, it is not quiet."""


async def baseline(study: Study) -> None:
    """One request at a time, ten times: what every other figure is compared with.

    Raises:
        ConfigError, Interrupted: as Study.run.
    """
    prompt, output = (64, 32) if study.quick else (256, 64)
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


async def mixed(study: Study) -> None:
    """Eight at once with similar prompts, answers 1 to 5: who waits for whom.

    Raises:
        ConfigError, Interrupted: as Study.run.
    """
    short, long = (16, 80) if study.quick else (40, 200)
    load = (
        f"name=one-to-five arrivals=burst arrivals.size=8 prompt=uniform prompt.min=48 prompt.max=64 output=bimodal "
        f"output.short={short} output.long={long} output.ratio=1:1 output.order=cycle"
    )
    runs = await _under_policies(study, load, size=8)
    study.table(
        "finish",
        f"Eight requests at once, four answers of {short} tokens and four of {long}: when each was answered.",
        (Column("policy"), Column("request", "", "in order of their ends"), Column("end", "s")),
        [(name, place, end) for name, run in runs.items() for place, end in enumerate(run.finish_times(), start=1)],
        x="request",
        y="end",
        series="policy",
    )
    _usage_table(study, runs)
    for name, run in runs.items():
        ends = run.finish_times()
        if not ends:
            continue
        half = ends[: len(ends) // 2]
        text = f"{name}: the first four are answered after {seconds(statistics.fmean(half))} on average, all after "
        text += f"{seconds(ends[-1])}"
        if run.engine is not None and run.engine.useful is not None:
            text += f"; {percent(run.engine.useful)} of the tokens computed are useful"
        study.sentence(text + ".")
    own = study.own_policy()
    for name, run in runs.items():
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
    prompt, output = (48, 24) if study.quick else (96, 48)
    load = (
        f"name=fifty arrivals=burst arrivals.size=50 prompt={prompt} output=uniform output.min={output // 2} "
        f"output.max={output * 3 // 2}"
    )
    runs = await _under_policies(study, load, size=8)
    _usage_table(study, runs)
    for name, run in runs.items():
        study.sentence(
            f"{name}: {run.answered} of 50 answered; first token p50 {seconds(run.figure(_TTFT, 50))}, p99 "
            f"{seconds(run.figure(_TTFT, 99))}; end to end p99 {seconds(run.figure(_E2E, 99))}; {run.pressure}."
        )
        config = study.config(run)
        study.conclude([*verdicts.prefill_stalls(run, config), *verdicts.short_of_memory(run, config)])
        study.conclude(verdicts.refused(run))


def _users(count: int) -> str:
    return f"arrivals=closed arrivals.users={count}"


def _as_they_come(study: Study, users: int) -> dict[str, object]:
    """Where a static batch would be larger than the users there are, it is as large as they are."""
    config = study.subject.config(study.settings)
    if config is not None and config.policy == "static" and config.max_wait is None and config.batch_size > users:
        study.note(f"with {users} users --batch-size is {users}: a larger static batch would never fill.")
        return {"batch_size": users}
    return {}


async def _under_policies(study: Study, load: str, size: int) -> dict[str, Measured]:
    """The load under each policy, or once where settings cannot be changed."""
    if not study.subject.settable:
        study.note(
            f"{study.subject.name} is a server with settings of its own: it ran as it is. Give the model itself as "
            "TARGET to see all three policies."
        )
        run = await study.run("as it is", load)
        return {run.policy or "as it is": run}
    several = {policy: policy_settings(policy, None if policy == "continuous" else size) for policy in POLICIES}
    study.subject.prepare([study.settings | one for one in several.values()])
    return {policy: await study.run(policy, load, settings) for policy, settings in several.items()}


def _usage_table(study: Study, runs: dict[str, Measured]) -> None:
    study.table(
        "policies",
        f"The load under {listed(list(runs))}." if len(runs) > 1 else "The load as the target runs it.",
        (
            Column("policy"),
            Column("at_once", "", "at once"),
            Column("rate", "tokens/s", "output"),
            Column("first", "s", "first token p50"),
            Column("end_p50", "s", "end to end p50"),
            Column("end_p99", "s", "end to end p99"),
            Column("between_p99", "s", "between tokens p99"),
            Column("busy", "share"),
            Column("useful", "share"),
            Column("waiting", "", "longest queue"),
            Column("held", "share", "KV held at most"),
        ),
        [
            (
                name,
                None if (config := study.config(run)) is None else config.max_rows,
                run.tokens_per_second,
                run.figure(_TTFT, 50),
                run.figure(_E2E, 50),
                run.figure(_E2E, 99),
                run.figure(_BETWEEN, 99),
                *_engine_cells(run),
            )
            for name, run in runs.items()
        ],
    )
    if any(not run.distribution(_BETWEEN).observable for run in runs.values()):
        study.note("a dash between tokens: not observable, since results leave together at the end of a batch.")


def _engine_cells(run: Measured) -> tuple[float | int | None, ...]:
    busy, useful = (None, None) if run.engine is None else (run.engine.busy, run.engine.useful)
    return (busy, useful, run.pressure.waiting, run.pressure.kv_share)
