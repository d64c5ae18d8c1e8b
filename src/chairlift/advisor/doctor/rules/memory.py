"""The KV pool: too small, badly reserved, or fought over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chairlift.advisor.doctor.case import Case
from chairlift.advisor.doctor.facts import Facts
from chairlift.advisor.doctor.finding import Change, Confidence, Finding, Seen, Stage, seconds, share
from chairlift.advisor.doctor.rules.closed import limit_setting
from chairlift.core.extremes import find_extremes

_OFTEN: Final = 0.1
"""Preemptions for each request."""
_AGAIN: Final = 0.05
"""Share of tokens computed again."""


def preemption_thrash(case: Case, facts: Facts) -> Iterator[Finding]:
    """Requests lose their KV blocks and are computed again: too many are let in for the pool."""
    if not facts.preemptions or not facts.requests:
        return
    often, again = facts.preemptions / facts.requests, facts.recompute or 0.0
    if often < _OFTEN and again < _AGAIN:
        return
    changes = []
    if case.capacity is not None:
        pool, size = case.capacity.num_blocks, case.capacity.block_size
        changes.append(Change("num_kv_blocks", pool, 2 * pool))
        if facts.rows_limit and facts.prompt_mean is not None and facts.output_mean is not None:
            whole = int(pool * size / max(1.0, facts.prompt_mean + facts.output_mean))
            changes.append(Change("max_num_seqs", facts.rows_limit, max(1, min(facts.rows_limit, whole))))
    else:
        told = str(facts.details.get("num_gpu_blocks", ""))
        if told.isdecimal():
            changes.append(Change("num_kv_blocks", int(told), 2 * int(told)))
        if facts.running_mean:
            changes.append(Change("max_num_seqs", facts.rows_limit, max(1, int(facts.running_mean))))
    yield Finding(
        "preemption_thrash",
        Stage.CONFIGURATION,
        "Preemption thrash: the KV pool runs out while answers grow, and requests are computed again.",
        (
            Seen("preemptions", f"{facts.preemptions:,.0f}, {often:.2f} for each request"),
            *((Seen("computed again", share(again), "of all tokens computed"),) if facts.recompute is not None else ()),
            Seen("KV pool, peak", share(facts.kv_peak or 0), "KV blocks held / all"),
        ),
        weight=min(1.2, 0.4 + 2 * again + 0.2 * often),
        confidence=Confidence.SURE,
        changes=tuple(changes),
        either=True,
        advice="Either change will do: fewer at once, or more memory (--gpu-memory-utilization). A larger --watermark "
        "admits later.",
        expected="no recomputation: the same output from fewer tokens",
    )


_FULL: Final = 0.9
_BLOCKED: Final = 0.3
"""Share of the wall in which the head of the queue waits for blocks."""
_BELOW: Final = 0.8
"""Running over what the setting lets run."""


def kv_too_small(case: Case, facts: Facts) -> Iterator[Finding]:
    """The KV pool holds fewer sequences than the limit lets run, and requests wait for blocks."""
    if facts.kv_peak is None or facts.kv_peak < _FULL or facts.running_peak is None:
        return
    waited = facts.blocked.get("waiting_for_blocks")
    if waited is None:  # a server that does not say why its queue waits
        if not facts.waiting_mean or facts.waiting_mean < 1 or (facts.kv_mean or 0) < _FULL:
            return
    elif waited < _BLOCKED and not _cut_by_memory(case):
        return
    if facts.rows_limit is not None and (facts.running_mean or facts.running_peak) > _BELOW * facts.rows_limit:
        return
    if case.config is not None and case.config.effective_kv_reservation != "prompt" and _overreserved(facts):
        return  # the reservation is what fills it: reservation_too_large says so
    limit = f" of {facts.rows_limit:,}" if facts.rows_limit is not None else ""
    factor = min(8.0, (facts.rows_limit or 2 * facts.running_peak) / max(1.0, facts.running_mean or 1.0))
    changes = []
    if case.capacity is not None:
        blocks = case.capacity.num_blocks
        changes.append(Change("num_kv_blocks", blocks, int(blocks * max(1.5, factor))))
    if facts.rows_limit is not None:
        changes.append(Change(limit_setting(case), facts.rows_limit, max(1, int(facts.running_peak))))
    yield Finding(
        "kv_too_small",
        Stage.CONFIGURATION,
        f"The KV pool is too small for --{limit_setting(case).replace('_', '-')}: requests wait for blocks, not for a "
        "slot.",
        (
            Seen("KV pool, peak and mean", f"{share(facts.kv_peak)}, {share(facts.kv_mean or 0)}", "blocks held / all"),
            Seen("running, mean and peak", f"{facts.running_mean or 0:.1f}, {facts.running_peak:g}{limit}"),
            *((Seen("the head of the queue waited for blocks", share(waited)),) if waited is not None else ()),
            Seen("waiting, mean", f"{facts.waiting_mean or 0:.1f}"),
        ),
        weight=min(0.95, (waited if waited is not None else 0.6) * 0.9),
        confidence=Confidence.SURE if waited is not None else Confidence.LIKELY,
        changes=tuple(changes),
        either=True,
        advice="More memory for the pool: --gpu-memory-utilization, a smaller precision of keys and values, more "
        "devices; or shorter requests.",
        expected="more run at once, until the limit or the device binds",
    )


def _cut_by_memory(case: Case) -> bool:
    """Whether closed batches left with fewer members because the next one's reservation did not fit."""
    return sum(one.reason == "cut_by_memory" for one in case.decisions) > len(case.batches) / 2 > 0


_UNUSED: Final = 0.5
"""Share of the KV positions held in which nothing is."""


def _overreserved(facts: Facts) -> bool:
    return facts.reserved_unused is not None and facts.reserved_unused > _UNUSED


def reservation_too_large(case: Case, facts: Facts) -> Iterator[Finding]:
    """Requests hold KV blocks for what they may generate, and others wait for those."""
    config = case.config
    if config is None or config.effective_kv_reservation == "prompt" or not _overreserved(facts):
        return
    waited = facts.blocked.get("waiting_for_blocks", 0.0)
    if waited < _BLOCKED and not _cut_by_memory(case):
        return
    lesser = "prompt" if not config.closed else "full"
    changes = (
        (Change("kv_reservation", config.effective_kv_reservation, lesser),)
        if config.effective_kv_reservation != lesser
        else (Change("policy", config.policy, "continuous"),)
    )
    yield Finding(
        "reservation_too_large",
        Stage.CONFIGURATION,
        "Requests hold KV blocks that they do not use, and others wait for those.",
        (
            Seen("reserved and unused", share(facts.reserved_unused or 0), "of the KV positions held, mean over time"),
            Seen("the head of the queue waited for blocks", share(waited)),
            Seen("running, mean", f"{facts.running_mean or 0:.1f} of {facts.rows_limit}"),
        ),
        weight=min(0.98, 0.4 + max(waited, 0.3) * 0.6),
        confidence=Confidence.SURE,
        changes=changes,
        advice="Requests that say how much they want (max_tokens) reserve less, too.",
        expected="more run at once in the same pool",
    )


def both_maxima(case: Case, facts: Facts) -> Iterator[Finding]:
    """Most sequences and greatest length together are more than the pool holds: said, whether it was felt or not."""
    if case.config is None or case.capacity is None:
        return
    found = find_extremes(case.config, case.capacity)
    if found is None:
        return
    yield Finding(
        "both_maxima",
        Stage.CONFIGURATION,
        str(found),
        (Seen("of what is promised the pool holds", share(found.share)),),
        weight=0.02,
        confidence=Confidence.SURE,
        changes=(Change(found.setting, found.sequences, max(1, found.whole)),),
        note=True,
    )


_SHARED: Final = 0.3


def sharing_off(case: Case, facts: Facts) -> Iterator[Finding]:
    """Prompts begin alike and their keys and values are computed anew each time."""
    shared = case.described.get("shared_tokens")
    if case.config is None or case.config.enable_prefix_caching or shared is None or shared < _SHARED:
        return
    yield Finding(
        "sharing_off",
        Stage.CONFIGURATION,
        "Prompts begin alike, and prefix caching is off: the same keys and values are computed again and again.",
        (
            Seen("shared within the load", share(shared), "what a perfect cache would find"),
            Seen("found in the cache", share(facts.cached or 0)),
            *((Seen("time to first token, mean", seconds(facts.ttft_mean)),) if facts.ttft_mean is not None else ()),
        ),
        weight=min(0.9, 0.25 + shared / 2),
        confidence=Confidence.SURE,
        changes=(Change("enable_prefix_caching", before=False, after=True),),
        expected="that share of the prompts costs nothing",
    )
