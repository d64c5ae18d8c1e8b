"""What measurements reveal, one small function for each verdict: it is given only where the figures bear it out.

Each names its evidence and the setting to change, with a value to try. What does not follow from the figures is left
to whoever sees more of the system: `chairlift doctor`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import OutOfDeviceMemory
from chairlift.lab.measured import EngineFigures, Measured
from chairlift.lab.pressure import Pressure
from chairlift.lab.studies.folder import Verdict
from chairlift.lab.studies.words import number, percent, seconds
from chairlift.lab.subjects import Settings

RISE: Final = 1.5
"""Many at once should give at least this many times the output of one at a time."""
FULL: Final = 0.9
"""Share of the KV pool from which it counts as full."""
_STALL: Final = 3.0
"""Times the median from which the 99th percentile between tokens counts as a stall."""
_RISING: Final = 0.75
"""Elasticity of output above which nothing binds yet."""
_LOW_USE: Final = 0.75
"""Share of useful tokens below which a closed batch does not fit its load."""


def no_rise(alone: Measured, many: Measured, users: int, config: SchedulerConfig | None) -> Iterator[Verdict]:
    """Output does not rise under concurrency: max_num_seqs or the KV pool holds it back, or the device is used up.

    Args:
        alone: one request at a time.
        many: `users` at once.
        users: how many.
        config: the settings of `many`, where known.
    """
    one, other = alone.tokens_per_second, many.tokens_per_second
    if not one or not other or other >= RISE * one:
        return
    seen = f"{users} users at once get {number(other)} output tokens/s, one alone {number(one)}"
    seen += f"; {many.pressure}{starved(alone, many)}"
    engine = many.engine
    if engine is None or config is None:
        yield from _no_rise_of_a_server(many.pressure, seen)
        return
    if config.policy == "continuous" and engine.waiting_peak and engine.running_peak >= config.max_num_seqs < users:
        yield Verdict(
            "Output hardly rises with concurrency because --max-num-seqs lets no more run at once.",
            seen,
            "--max-num-seqs",
            config.max_num_seqs,
            users,
        )
    elif engine.waiting_peak and engine.kv_peak >= FULL * engine.kv_blocks:
        yield Verdict(
            "Output hardly rises with concurrency because the KV pool is full: the others wait for blocks.",
            f"{seen}; {engine.kv_peak:,} of {engine.kv_blocks:,} KV blocks held",
            "--num-kv-blocks",
            engine.kv_blocks,
            blocks_wanted(engine, users),
        )
    else:
        yield Verdict(
            "Output hardly rises with concurrency, and neither --max-num-seqs nor the KV pool holds it back: few "
            "sequences use the device up.",
            f"{seen}; busy {percent(engine.busy)}",
        )


def _no_rise_of_a_server(pressure: Pressure, seen: str) -> Iterator[Verdict]:
    """The same from what a server says of itself; its settings are not known, so no value is named."""
    if pressure.kv_share is not None and pressure.kv_share >= FULL:
        yield Verdict(
            "Output hardly rises with concurrency because the server's KV cache is full: give it more memory (vLLM: "
            "--gpu-memory-utilization), or shorten --max-model-len.",
            seen,
        )
    elif pressure.waiting:
        yield Verdict(
            "Output hardly rises with concurrency while requests wait and the KV cache has room: the server lets too "
            "few run at once (vLLM: --max-num-seqs).",
            seen,
        )
    else:
        yield Verdict(
            "Output hardly rises with concurrency; whether a limit of the server holds it back or its device is used "
            "up is for its own metrics to say.",
            seen,
        )


def starved(*runs: Measured) -> str:
    """A doubt to put behind evidence: something else had the machine while these ran."""
    if any(run.result.client.bottleneck for run in runs):
        return "; but the client was short of time on this machine: repeat it on a quiet one before changing anything"
    return ""


def blocks_wanted(engine: EngineFigures, users: int) -> int:
    """KV blocks with which so many could run at once, by what those that ran held."""
    return -(-engine.kv_peak * users // max(1, engine.running_peak))


def prefill_stalls(run: Measured, config: SchedulerConfig | None) -> Iterator[Verdict]:
    """The device is busy and the 99th percentile between tokens explodes: too much prefill in a step."""
    middle, tail = run.figure("time_between_tokens", 50), run.figure("time_between_tokens", 99)
    if middle is None or tail is None or tail < _STALL * middle:
        return
    seen = f"time between tokens p99 {seconds(tail)}, p50 {seconds(middle)}{starved(run)}"
    engine = run.engine
    if engine is None or config is None:
        yield Verdict(
            "Some tokens come much later than the others. Where prompts arrive meanwhile, their prefill is the likely "
            "cause: limit a step's tokens, or chunk prefills.",
            seen,
        )
        return
    if config.closed or engine.largest_prefill_step < 0.5 * tail:
        return
    seen += f"; the longest step with prompts and decodes together took {seconds(engine.largest_prefill_step)}"
    seen += f", busy {percent(engine.busy)}"
    if not config.enable_chunked_prefill:
        yield Verdict(
            "Answers in progress stall while whole prompts are computed: chunk them.",
            seen,
            "--enable-chunked-prefill",
            "off",
            "on",
        )
    else:
        lower = max(config.max_num_seqs, config.max_num_batched_tokens // 4, 16)
        if lower < config.max_num_batched_tokens:
            yield Verdict(
                "Answers in progress stall while prompts are computed: there is too much prefill in a step.",
                seen,
                "--max-num-batched-tokens",
                config.max_num_batched_tokens,
                lower,
            )


def short_of_memory(run: Measured, config: SchedulerConfig | None) -> Iterator[Verdict]:
    """Requests lose their memory, or get none: the pool against how many run and how long they may be."""
    engine = run.engine
    if engine is None or config is None:
        return
    if engine.preemptions:
        wanted = blocks_wanted(engine, min(run.result.summary.scheduled, config.max_num_seqs))
        yield Verdict(
            "The KV pool runs out while requests grow: some lose their blocks and are computed again.",
            f"{engine.preemptions} preemptions, {percent(engine.share('recompute'))} of the tokens recomputed, "
            f"{engine.kv_peak:,} of {engine.kv_blocks:,} KV blocks held at the peak",
            "--num-kv-blocks",
            engine.kv_blocks,
            max(wanted, engine.kv_blocks + engine.kv_blocks // 4),
        )


def out_of_memory(error: OutOfDeviceMemory, settings: Settings) -> Verdict:
    """The device ran out of memory in the middle of a load: its share against what a step and a sequence may take.

    Args:
        error: in its own words, with the numbers.
        settings: of the run.
    """
    share = settings.get("gpu_memory_utilization")
    return Verdict(
        "The device runs out of memory under this load: the KV pool leaves too little beside it. Lower the share, or "
        "--max-num-batched-tokens (a step's activations); --max-model-len and --max-num-seqs say what the pool must "
        "hold.",
        str(error),
        "--gpu-memory-utilization",
        share,
        None if share is None else round(share - 0.05, 2),
    )


def refused(run: Measured) -> Iterator[Verdict]:
    """Requests were refused or failed; their own words say what to change."""
    failed = [trace for trace in run.result.traces if not trace.ok and not trace.warmup]
    if failed:
        words = failed[0].error_message.strip().rstrip(".")
        yield Verdict(
            f"{len(failed)} of {run.result.summary.scheduled} requests were not answered.",
            f"the first: {words}" if words else f"the first: {failed[0].error}",
        )


def outgrown(run: Measured, config: SchedulerConfig | None) -> Iterator[Verdict]:
    """Members of closed batches keep finishing and useful utilisation does not recover: the policy does not fit."""
    engine = run.engine
    if engine is None or config is None or not config.closed or engine.useful is None:
        return
    dead = engine.share("dead") or 0.0
    if engine.useful < _LOW_USE and dead > engine.useful / 10:
        yield Verdict(
            f"{config.policy} batching does not fit this load: members end, and their rows run on for nothing until "
            "the batch does.",
            f"useful {percent(engine.useful)} of the tokens computed, dead rows {percent(dead)}, padding "
            f"{percent(engine.share('padding'))}",
            "--policy",
            config.policy,
            "continuous",
        )


def binding_constraint(
    run: Measured, config: SchedulerConfig | None, before: tuple[Measured, int, int] | None = None
) -> str:
    """Which of memory, compute and a setting binds at this load, in words with figures.

    Args:
        run: at the load in question.
        config: its settings, where known.
        before: a run with fewer users, their number, and the number in `run`: where output still rises nearly as
            users do, nothing binds.
    """
    engine, pressure = run.engine, run.pressure
    if pressure.preemptions or (pressure.kv_share is not None and pressure.kv_share >= FULL):
        return f"memory binds: {pressure}"
    window = run.result.summary.window
    limited = config is not None and window is not None and window.peak > config.max_rows
    if limited or (pressure.sampled and pressure.waiting):
        return f"a setting binds: no more may run at once ({pressure})"
    if before is not None:
        fewer, few, many = before
        low, high = fewer.tokens_per_second, run.tokens_per_second
        if low and high and elasticity(low, high, few, many) > _RISING:
            return f"nothing binds yet: from {few} to {many} users output rose {number(high / low)} times"
    if engine is None:
        return "what binds is not known: the target does not say"
    rows = f"with {engine.rows_mean:.1f} rows a step"
    return f"the device binds: it was busy for {percent(engine.busy)} of the time {rows}"


def elasticity(low: float, high: float, few: int, many: int) -> float:
    """How much of a rise in users is a rise in output: log of the outputs' ratio over log of the users'. 1: all of it;
    0: none.
    """
    return math.log(high / low) / math.log(many / few)
