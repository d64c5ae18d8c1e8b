"""Continuous batching: slots, steps, prompts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

from chairlift.advisor.doctor.case import Case
from chairlift.advisor.doctor.facts import STALL, Facts
from chairlift.advisor.doctor.finding import Change, Confidence, Finding, Seen, Stage, seconds, share


def _continuous(case: Case) -> bool:
    """A server that is not ours does nothing else."""
    return case.config is None or case.config.policy == "continuous"


_SPARE_KV: Final = 0.7
_AT_LIMIT: Final = 0.3
"""Share of the time at the limit with a queue."""
_PAYS: Final = 1.25
"""Twice the sequences must give this many times the tokens, or the device is used up and not the limit to blame."""


def slots_short(case: Case, facts: Facts) -> Iterator[Finding]:
    """max_num_seqs is reached with KV to spare and a queue behind it, and more sequences would give more."""
    if not _continuous(case) or facts.at_limit is None or facts.rows_limit is None:
        return
    # Slots of llama.cpp have memory of their own, so that nothing but their number holds requests back.
    own = case.server == "llama.cpp"
    if facts.at_limit < _AT_LIMIT or (not own and (facts.kv_peak is None or facts.kv_peak > _SPARE_KV)):
        return
    used = facts.kv_peak if facts.kv_peak is not None else 0.45
    gain = gain_of_twice(facts.step_by_rows, facts.rows_limit)
    if gain is not None and gain < _PAYS:
        return
    room = max(2, min(8, int(0.9 / max(0.01, used))))
    yield Finding(
        "slots_short",
        Stage.CONFIGURATION,
        "The number of slots (--max-num-seqs) is reached while there is memory: requests wait for a slot.",
        (
            Seen("at the limit with a queue", share(facts.at_limit), "share of the wall"),
            *(
                (Seen("KV pool, peak", share(facts.kv_peak), "KV blocks held / all"),)
                if facts.kv_peak is not None
                else ()
            ),
            Seen("running at the limit, and waiting, mean", f"{facts.rows_limit}, {facts.waiting_mean or 0:.1f}"),
            *((Seen("twice the sequences would give", f"{gain:.2f} times the tokens/s"),) if gain is not None else ()),
        ),
        weight=min(0.95, facts.at_limit * (0.9 if gain is None else min(1.0, gain - 1))),
        confidence=Confidence.SURE if gain is not None else Confidence.LIKELY,
        changes=(Change("max_num_seqs", facts.rows_limit, room * facts.rows_limit),),
        expected="more run at once: more tokens/s, a shorter queue, somewhat more time between tokens",
    )


def gain_of_twice(steps: Mapping[int, float], rows: int) -> float | None:
    """Throughput with twice as many rows over that with so many, if step times go on as a line; None: too few points.

    Steps of few rows are read against steps of many: t = a + b x rows by least squares.
    """
    points = [(n, t) for n, t in steps.items() if n >= max(1, rows // 8)]
    if len(points) < 3 or max(n for n, _ in points) < 2 * min(n for n, _ in points):
        return None
    mean_n = sum(n for n, _ in points) / len(points)
    mean_t = sum(t for _, t in points) / len(points)
    spread = sum((n - mean_n) ** 2 for n, _ in points)
    slope = max(0.0, sum((n - mean_n) * (t - mean_t) for n, t in points) / spread)
    base = mean_t - slope * mean_n
    now, then = base + slope * rows, base + slope * 2 * rows
    return 2 * now / then if now > 0 and then > 0 else None


_STUTTER: Final = 3.0
"""Times the median from which the 99th percentile between tokens is an explosion, if a reader can notice it (STALL)."""
_EXPLOSION: Final = 8.0
"""Times the median from which it is one at half of that, too."""
_STALLS: Final = "times between tokens of three medians and 0.2 s or more"
_SEEN: Final = 0.5
"""Stalls in an answer of mean length from which they are worth a finding, however high the percentile is."""


def prefill_interference(case: Case, facts: Facts) -> Iterator[Finding]:
    """High utilisation and an exploding p99 between tokens: too much prefill in a step."""
    if not _continuous(case) or facts.itl_p50 is None or facts.itl_p99 is None:
        return
    times = facts.itl_p99 / facts.itl_p50 if facts.itl_p50 else 0.0
    explodes = (times >= _STUTTER and facts.itl_p99 >= STALL) or (times >= _EXPLOSION and facts.itl_p99 >= STALL / 2)
    stalls = (facts.stalls or 0.0) * (facts.output_mean or 0.0)
    if not explodes and stalls < _SEEN:
        return
    if facts.mixed_step is not None and facts.decode_step is not None:
        if facts.mixed_steps == 0 or facts.mixed_step < 0.7 * _STUTTER * facts.decode_step:
            return
        confidence = Confidence.SURE
    elif facts.mixed_step is not None or facts.decode_step is not None:
        confidence = Confidence.LIKELY
    else:
        confidence = Confidence.POSSIBLE
    config = case.config
    changes: tuple[Change, ...] = ()
    if config is not None and not config.enable_chunked_prefill:
        changes = (
            Change("enable_chunked_prefill", before=False, after=True),
            Change("max_num_batched_tokens", config.max_num_batched_tokens, max(config.max_num_seqs, 512)),
        )
    elif config is not None:
        lower = max(config.max_num_seqs, config.max_num_batched_tokens // 4)
        changes = (Change("max_num_batched_tokens", config.max_num_batched_tokens, lower),)
    yield Finding(
        "prefill_interference",
        Stage.CONFIGURATION,
        "Prompts stall running answers: too much prefill in a step.",
        (
            Seen("time between tokens, p50 and p99", f"{seconds(facts.itl_p50)}, {seconds(facts.itl_p99)}"),
            *((Seen("stalls in an answer, mean", f"{stalls:.1f}", _STALLS),) if facts.stalls is not None else ()),
            *(
                (
                    Seen("a step with prompts, p90", seconds(facts.mixed_step), "steps that carry prompts and decodes"),
                    Seen("a step without, median", seconds(facts.decode_step)),
                )
                if facts.mixed_step is not None and facts.decode_step is not None
                else ()
            ),
        ),
        weight=min(0.9, max(0.12 * facts.itl_p99 / facts.itl_p50, 0.3 * min(2.0, stalls))),
        confidence=confidence,
        changes=changes,
        advice="" if changes else "Lower the tokens of a step (--max-num-batched-tokens), or chunk prefills.",
        expected="a lower p99 between tokens; prompts take a little longer",
    )


_PIECES: Final = 8.0
"""Steps that a mean prompt takes."""
_NEARLY_FREE: Final = 1.5
"""A full step's time over one without prompts: below this its tokens cost next to nothing."""


def budget_too_small(case: Case, facts: Facts) -> Iterator[Finding]:
    """Prompts are cut into many pieces although larger steps would take hardly longer."""
    config = case.config
    if config is None or config.closed or facts.prompt_mean is None:
        return
    pieces = facts.prompt_mean * (1 - (facts.cached or 0)) / config.max_num_batched_tokens
    if pieces < _PIECES or facts.mixed_step is None or facts.decode_step is None:
        return
    if facts.mixed_step > _NEARLY_FREE * facts.decode_step or not facts.ttft_mean or not facts.end_to_end_mean:
        return
    yield Finding(
        "budget_too_small",
        Stage.CONFIGURATION,
        "--max-num-batched-tokens is too small: prompts take many steps, each hardly longer than one without prompts.",
        (
            Seen("steps for a mean prompt", f"{pieces:.0f}"),
            Seen("a step with prompts, p90", seconds(facts.mixed_step)),
            Seen("a step without, median", seconds(facts.decode_step)),
            Seen("time to first token, mean", seconds(facts.ttft_mean)),
        ),
        weight=min(0.9, 0.3 + facts.ttft_mean / facts.end_to_end_mean),
        confidence=Confidence.SURE,
        changes=(Change("max_num_batched_tokens", config.max_num_batched_tokens, 4 * config.max_num_batched_tokens),),
        expected="prompts take a quarter of the steps; time between tokens rises little",
    )


_BLOCKED: Final = 0.2


def prompts_held_back(case: Case, facts: Facts) -> Iterator[Finding]:
    """prefill_interval or target_itl keeps prompts out of steps, and the queue pays for it."""
    config = case.config
    if config is None or config.closed or not facts.end_to_end_mean:
        return
    for reason, setting, after in (
        ("waiting_for_interval", "prefill_interval", 1),
        ("waiting_for_latency", "target_itl", None),
    ):
        time = facts.blocked.get(reason, 0.0)
        wait = (facts.queue_mean or 0.0) / facts.end_to_end_mean
        if time < _BLOCKED or wait < _BLOCKED:
            continue
        before = getattr(config, setting)
        yield Finding(
            "prompts_held_back",
            Stage.CONFIGURATION,
            f"--{setting.replace('_', '-')} keeps prompts out of steps, and requests wait for it.",
            (
                Seen("the queue's head waited for it", share(time), "share of the wall"),
                Seen(
                    "time in the queue, mean", f"{seconds(facts.queue_mean or 0)} of {seconds(facts.end_to_end_mean)}"
                ),
                Seen("time between tokens, p99", seconds(facts.itl_p99 or 0)),
            ),
            weight=min(0.9, wait),
            confidence=Confidence.SURE,
            changes=(
                Change(
                    setting,
                    f"{before / 1e6:g}ms" if setting == "target_itl" and before else before,
                    f"{2 * before / 1e6:g}ms" if setting == "target_itl" and before else after,
                ),
            ),
            expected="requests start sooner; answers in progress stutter a little more",
        )


_STRETCHES: Final = 3
"""Separate stretches in which sizes near the cliff were seen, on each side of it."""
_JUMP: Final = 1.25
"""Time of a step with a little more sequences over that of one with a little fewer."""


def _often(stretches: Mapping[int, int], low: int, high: int) -> bool:
    """Whether sizes up to a seventh below and above the cliff were seen often enough to be no chance."""
    below = sum(count for size, count in stretches.items() if 0.86 * low <= size <= low)
    above = sum(count for size, count in stretches.items() if high <= size <= 1.16 * high)
    return min(below, above) >= _STRETCHES


def batch_cliff(case: Case, facts: Facts) -> Iterator[Finding]:
    """At some number of sequences a step takes so much longer that more of them give less."""
    rates = {rows: rows / time for rows, time in facts.step_by_rows.items() if time}
    ordered = sorted(rates)
    best: tuple[float, int, int] | None = None
    for low, high in itertools.pairwise(ordered):
        if low < 4 or high > 1.3 * low or not _often(facts.stretches, low, high):
            continue
        jump = facts.step_by_rows[high] / facts.step_by_rows[low]
        if jump > _JUMP and rates[high] < 0.9 * rates[low] and (best is None or jump > best[0]):
            best = (jump, low, high)
    if best is None:
        return
    jump, low, high = best
    beyond = [rates[rows] for rows in ordered if rows >= high]
    if max(beyond) > rates[low]:
        return
    setting = (
        "max_num_seqs"
        if case.config is None
        else {"static": "batch_size", "dynamic": "max_batch_size", "continuous": "max_num_seqs"}[case.config.policy]
    )
    yield Finding(
        "batch_cliff",
        Stage.RESOURCES,
        f"A cliff: with {high} sequences a step takes {jump:.2f} times as long as with {low}, so that more give less.",
        (
            Seen(f"step of {low}", seconds(facts.step_by_rows[low]), "median of steps without prompts"),
            Seen(f"step of {high}", seconds(facts.step_by_rows[high])),
            Seen("tokens/s before and after", f"{rates[low]:,.0f}, {rates[high]:,.0f}"),
        ),
        weight=min(0.9, 0.3 + (1 - max(beyond) / rates[low])),
        confidence=Confidence.SURE,
        changes=(Change(setting, facts.rows_limit, low),),
        advice="Kernels and captured graphs are made for certain sizes; stay below the one that is missing.",
        expected="as many tokens/s or more, with less time between them",
    )
