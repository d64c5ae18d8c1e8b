"""Static and dynamic batching: waste inside a batch, and waiting for it to fill."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Final

from chairlift.advisor.doctor.case import Case
from chairlift.advisor.doctor.facts import SOON, Facts
from chairlift.advisor.doctor.finding import Change, Confidence, Finding, Seen, Stage, seconds, share
from chairlift.core.extremes import rows_setting

_WASTE: Final = 0.15
"""Share of the device's time from which a waste is worth a finding."""
_FEW_BATCHES: Final = 3


def straggler_waste(case: Case, facts: Facts) -> Iterator[Finding]:
    """Members keep finishing and useful utilisation does not recover: their rows run on until the longest ends."""
    if facts.dead_time is None or facts.dead_time < _WASTE:
        return
    policy = case.config.policy if case.config is not None else facts.details.get("policy", "closed")
    yield Finding(
        "straggler_waste",
        Stage.CONFIGURATION,
        f"{policy} batching does not fit this load: requests keep finishing, and their rows run on for "
        "nothing until the longest of the batch ends.",
        (
            Seen("dead rows", share(facts.dead_time), "device time at average cost of rows whose request had ended"),
            Seen("useful", share(facts.useful or 0), "prefill and decode tokens / all tokens computed"),
            Seen("output tokens, mean", f"{facts.output_mean or 0:,.0f}"),
        ),
        weight=facts.dead_time,
        confidence=Confidence.SURE,
        changes=(Change("policy", policy, "continuous"),),
        expected="who has finished leaves at once and who waits takes the place",
    )


def padding_waste(case: Case, facts: Facts) -> Iterator[Finding]:
    """Prompts of unequal length are padded to the batch's longest."""
    if facts.padding_time is None or facts.padding_time < _WASTE:
        return
    computed = sum(step.padding for step in case.steps)
    prompts = sum(step.prefill for step in case.steps)
    before = case.config.effective_padding if case.config is not None else "longest"
    yield Finding(
        "padding_waste",
        Stage.CONFIGURATION,
        "Prompts of unequal length are padded to the longest of their batch, and the padding is computed.",
        (
            Seen("padding", share(facts.padding_time), "device time at average cost of padding tokens / device time"),
            *((Seen("padding tokens for each prompt token", f"{computed / prompts:.2f}"),) if prompts else ()),
        ),
        weight=facts.padding_time,
        confidence=Confidence.SURE,
        changes=(Change("padding", before, "none"),),
        advice="Or order the queue by the length of prompts (--queue-order shortest_prompt).",
        expected="prompts cost what they are long",
    )


_WAIT: Final = 0.25
"""Share of the mean end-to-end time that a request waits while the device does nothing."""


def _held(facts: Facts) -> float:
    """Share of the end-to-end time spent waiting for an idle device."""
    if facts.held is None or not facts.end_to_end_mean:
        return 0.0
    return facts.held / facts.end_to_end_mean


def waits_to_fill(case: Case, facts: Facts) -> Iterator[Finding]:
    """Static: requests wait for a full batch while the device does nothing."""
    config = case.config
    if config is None or config.policy != "static" or _held(facts) < _WAIT or len(facts.members) < _FEW_BATCHES:
        return
    yield Finding(
        "waits_to_fill",
        Stage.CONFIGURATION,
        "Requests wait for their static batch to fill while the device does nothing: they come too slowly for it.",
        (
            Seen("held", f"{seconds(facts.held or 0)} of {seconds(facts.end_to_end_mean or 0)} end to end", "mean"),
            Seen("busy", share(facts.busy or 0), "device time / wall"),
            Seen("members of a batch, mean", f"{fmean(facts.members):.1f} of {config.batch_size}"),
        ),
        weight=_held(facts),
        confidence=Confidence.SURE,
        changes=(Change("batch_size", config.batch_size, max(1, config.batch_size // 4)),),
        advice="Or --policy dynamic with a bounded wait, or continuous, which never waits for company.",
        expected="a smaller batch fills sooner",
    )


_NEVER: Final = 0.5
"""Share of the largest batch allowed that no batch exceeds."""
_ENOUGH_BATCHES: Final = 10


def batch_never_fills(case: Case, facts: Facts) -> Iterator[Finding]:
    """Dynamic: the largest batch allowed is never nearly reached; the parameter has no effect."""
    config = case.config
    if config is None or config.policy != "dynamic" or len(facts.members) < _ENOUGH_BATCHES:
        return
    largest = max(facts.members)
    if largest > _NEVER * config.max_batch_size or facts.batch_reasons.get("preferred_size"):
        return
    yield Finding(
        "batch_never_fills",
        Stage.CONFIGURATION,
        "Batches never fill: --max-batch-size was raised without --max-queue-delay, and has no effect.",
        (
            Seen(
                "members of a batch", f"mean {fmean(facts.members):.1f}, largest {largest} of {config.max_batch_size}"
            ),
            Seen("batches that left full", f"{facts.batch_reasons.get('batch_full', 0)} of {len(facts.members)}"),
            Seen("--max-queue-delay", seconds(config.max_queue_delay / 1e9)),
        ),
        weight=0.12,
        confidence=Confidence.SURE,
        changes=(Change("max_batch_size", config.max_batch_size, largest),),
        advice="Where throughput lacks, raise --max-queue-delay with it; else the smaller limit says what is.",
    )


def delay_too_long(case: Case, facts: Facts) -> Iterator[Finding]:
    """Dynamic: the average wait soars while the device does nothing, and batches do gain members by it."""
    config = case.config
    if config is None or config.policy != "dynamic" or _held(facts) < _WAIT or len(facts.members) < _FEW_BATCHES:
        return
    if fmean(facts.members) < _COMPANY:
        return
    yield Finding(
        "delay_too_long",
        Stage.CONFIGURATION,
        "The delay is too long: requests wait for company while the device does nothing.",
        (
            Seen("held", f"{seconds(facts.held or 0)} of {seconds(facts.end_to_end_mean or 0)} end to end", "mean"),
            Seen("busy", share(facts.busy or 0), "device time / wall"),
            Seen("members of a batch, mean", f"{fmean(facts.members):.1f} of {config.max_batch_size}"),
            Seen(
                "left because the delay was over", f"{facts.batch_reasons.get('delay_over', 0)} of {len(facts.members)}"
            ),
        ),
        weight=_held(facts),
        confidence=Confidence.SURE,
        changes=(Change("max_queue_delay", _ms(config.max_queue_delay), _ms(config.max_queue_delay // 4)),),
        advice="Look at the queue's length and the mean wait first, then at the batch size.",
        expected="less wait; batches leave a little smaller",
    )


_COMPANY: Final = 1.5
"""Mean members from which a delay has brought company."""


def delay_without_effect(case: Case, facts: Facts) -> Iterator[Finding]:
    """Dynamic: requests wait out the delay and leave alone."""
    config = case.config
    if config is None or config.policy != "dynamic" or len(facts.members) < _ENOUGH_BATCHES:
        return
    alone = sum(one == 1 for one in facts.members) / len(facts.members)
    over = facts.batch_reasons.get("delay_over", 0) / len(facts.members)
    if fmean(facts.members) >= _COMPANY or over < 0.5 or _held(facts) < 0.1:
        return
    yield Finding(
        "delay_without_effect",
        Stage.CONFIGURATION,
        "The delay brings no company: requests wait it out and then leave alone.",
        (
            Seen("batches of one", share(alone)),
            Seen("left because the delay was over", share(over)),
            Seen("held", f"{seconds(facts.held or 0)} of {seconds(facts.end_to_end_mean or 0)} end to end", "mean"),
        ),
        weight=max(0.15, _held(facts)),
        confidence=Confidence.SURE,
        changes=(Change("max_queue_delay", _ms(config.max_queue_delay), "0"),),
        expected="every request is sooner by the delay; batches stay as they are",
    )


_LATE: Final = 2 * SOON
"""Share of the requests that are just too late for a batch, twice what even arrivals give."""


def delay_too_short(case: Case, facts: Facts) -> Iterator[Finding]:
    """Dynamic: batches leave small, and others come just after they have left."""
    config = case.config
    if config is None or config.policy != "dynamic" or len(facts.members) < _FEW_BATCHES or facts.late is None:
        return
    early = facts.batch_reasons.get("delay_over", 0) + facts.batch_reasons.get("no_delay", 0)
    if facts.late < _LATE or facts.late_within is None or early < 0.5 * len(facts.members):
        return
    if facts.late_within * 1e9 <= config.max_queue_delay:
        return
    longer = facts.late_within + config.max_queue_delay / 1e9
    yield Finding(
        "delay_too_short",
        Stage.CONFIGURATION,
        "The delay is too short: batches leave small, and requests that come just after wait for the whole batch.",
        (
            Seen("members of a batch, mean", f"{fmean(facts.members):.1f} of {config.max_batch_size}"),
            Seen("came just too late for one that had room", share(facts.late), "of all requests"),
            Seen("nine tenths of those came within", seconds(facts.late_within)),
            Seen("waiting, mean", f"{facts.waiting_mean or 0:.1f}"),
        ),
        weight=min(0.6, facts.late),
        confidence=Confidence.LIKELY,
        changes=(Change("max_queue_delay", _ms(config.max_queue_delay), f"{max(1, round(longer * 1000))}ms"),),
        expected="they leave together, in one batch instead of two",
    )


_CAPPED: Final = 0.5


def preferred_size_caps(case: Case, facts: Facts) -> Iterator[Finding]:
    """Dynamic: a small preferred size wins over waiting for more, while more are there."""
    config = case.config
    if config is None or config.policy != "dynamic" or not config.preferred_batch_sizes or not facts.members:
        return
    preferred = facts.batch_reasons.get("preferred_size", 0) / len(facts.members)
    largest = max(config.preferred_batch_sizes)
    if preferred < _CAPPED or 2 * largest > config.max_batch_size or (facts.waiting_mean or 0) < 0.5 * largest:
        return
    yield Finding(
        "preferred_size_caps",
        Stage.CONFIGURATION,
        "A preferred size caps the batches: they leave as soon as it is reached, while more requests wait.",
        (
            Seen("left at a preferred size", share(preferred)),
            Seen("members of a batch, mean", f"{fmean(facts.members):.1f} of {config.max_batch_size}"),
            Seen("waiting, mean", f"{facts.waiting_mean or 0:.1f}"),
        ),
        weight=0.5,
        confidence=Confidence.SURE,
        changes=(Change("preferred_batch_sizes", config.preferred_batch_sizes, (config.max_batch_size,)),),
        expected="batches as large as what waits",
    )


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:g}ms" if nanoseconds else "0"


def limit_setting(case: Case) -> str:
    """The field that limits how many run at once."""
    return rows_setting(case.config) if case.config is not None else "max_num_seqs"
