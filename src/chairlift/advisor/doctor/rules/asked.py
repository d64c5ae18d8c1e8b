"""What is asked, and by whom: the client, cache hits, lengths, arrivals, concurrency."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from chairlift.advisor.doctor.case import Case, counted
from chairlift.advisor.doctor.facts import Facts
from chairlift.advisor.doctor.finding import Change, Confidence, Finding, Seen, Stage, seconds, share
from chairlift.core.extremes import rows_setting


def client_bottleneck(case: Case, facts: Facts) -> Iterator[Finding]:
    """The client was late or out of time: the run measures it, not the server."""
    verdict = case.client
    if verdict is None or not verdict.bottleneck:
        return
    yield Finding(
        "client_bottleneck",
        Stage.INPUT,
        "The client was the bottleneck: it sent late or read late, so the figures say more about it than about the "
        "server.",
        tuple(
            Seen(
                one.name,
                f"{seconds((one.value or 0) / 1e9) if one.unit == 'ns' else f'{one.value:.3g}'} (limit "
                f"{seconds(one.limit / 1e9) if one.unit == 'ns' else f'{one.limit:g}'})",
                one.meaning,
            )
            for one in verdict.reasons
        ),
        weight=2.5,
        confidence=Confidence.SURE,
        advice="Give it a processor of its own, more processes, or a smaller load; then look again.",
    )


_WARM: Final = 0.1
"""Share of prompt tokens by which hits may exceed what the load itself shares."""


def warm_cache(case: Case, facts: Facts) -> Iterator[Finding]:
    """More cache hits than the load's own prompts share: an earlier run filled the cache."""
    shared = case.described.get("shared_tokens")
    if facts.cached is None or shared is None or facts.cached < shared + _WARM:
        return
    yield Finding(
        "warm_cache",
        Stage.INPUT,
        "The prefix cache was warm: prompts were found in it that this load does not repeat.",
        (
            Seen("found in the cache", share(facts.cached), "prompt tokens found in the prefix cache / all"),
            Seen("shared within the load", share(shared), "what a perfect cache would find in this load alone"),
        ),
        weight=2.2,
        confidence=Confidence.SURE,
        advice="Put a nonce in front of the prompts, or start the server anew; times to first token are too good.",
        expected="prompts are computed as they would be in service",
    )


_LOST: Final = 0.02
_SHORT: Final = 0.85
"""Answers shorter than this share of what the load asks for."""


def truncated_outputs(case: Case, facts: Facts) -> Iterator[Finding]:
    """Answers end before the load wants them to: fewer decodes than were meant to be measured."""
    wanted = (case.described.get("output") or {}).get("mean")
    if not wanted or facts.output_mean is None or facts.output_mean >= _SHORT * wanted:
        return
    if sum(facts.errors.values()) > _LOST * max(1, len(counted(case.traces))):
        return  # the longest may be those that failed
    lengths = [t.finish_reason for t in counted(case.traces) if t.ok] or [str(r.finish_reason) for r in case.requests]
    stopped = sum(reason == "stop" for reason in lengths) / max(1, len(lengths))
    limit = case.config.max_model_len if case.config is not None else None
    cut = limit is not None and (case.described.get("longest") or 0) > limit
    yield Finding(
        "truncated_outputs",
        Stage.INPUT,
        "Answers are shorter than the load asks for"
        + (": they run into --max-model-len." if cut else ": the model ends them." if stopped > 0.5 else "."),
        (
            Seen("output tokens, mean", f"{facts.output_mean:,.0f}"),
            Seen("asked for, mean", f"{wanted:,.0f}"),
            Seen("ended by a stop", share(stopped)),
        ),
        weight=2.1,
        confidence=Confidence.SURE,
        changes=(Change("max_model_len", limit, case.described.get("longest")),) if cut else (),
        advice="" if cut else "Let requests go on past the end of sequence (ignore_eos) where lengths are to be kept.",
        expected="answers as long as the load says: more decodes, longer sequences",
    )


_QUARTER: Final = 10
"""Requests in a quarter of the run, at least."""
_SIGNIFICANT: Final = 3.0
"""Standard deviations of a Poisson count."""


def not_stationary(case: Case, facts: Facts) -> Iterator[Finding]:
    """Arrivals change during the run, so that its means describe no moment of it."""
    if case.described.get("users") is not None:
        return
    due = sorted(trace.scheduled for trace in counted(case.traces)) or sorted(one.arrival for one in case.requests)
    if len(due) < 4 * _QUARTER or due[-1] == due[0]:
        return
    length = (due[-1] - due[0]) / 4
    counts = [0, 0, 0, 0]
    for time in due:
        counts[min(3, int((time - due[0]) / length))] += 1
    if counts not in (sorted(counts), sorted(counts, reverse=True)):
        return  # up and down, such as traffic and silence in turn
    first, last = counts[0], counts[-1]
    low, high = sorted((first, last))
    if low < _QUARTER / 2 and high < _QUARTER:
        return
    if high < 1.8 * max(1, low) or high - low < _SIGNIFICANT * math.sqrt(high + low):
        return
    grows = last > first
    yield Finding(
        "not_stationary",
        Stage.INPUT,
        f"The load is not stationary: {'more' if grows else 'fewer'} requests come at the end than at the beginning, "
        "so means over the run describe no moment of it.",
        (
            Seen("arrivals in the first quarter", f"{first:,}"),
            Seen("in the last", f"{last:,}"),
            *(
                (Seen("waiting, at the middle and at the end", f"{facts.waiting_middle:g}, {facts.waiting_end:g}"),)
                if facts.waiting_middle is not None and facts.waiting_end is not None
                else ()
            ),
        ),
        weight=1.5,
        confidence=Confidence.SURE,
        advice="Look at the quarters apart, or drive a load of constant rate.",
    )


_FULL: Final = 0.9
_LONG_QUEUE: Final = 0.25
"""Share of the end-to-end time spent in the queue, where requests enter at every step."""
_GROWN: Final = 1.5
"""The queue at the end over that at the middle, where nothing else tells that a server is used up."""


def overload(case: Case, facts: Facts) -> Iterator[Finding]:
    """The device is used up and the queue grows: more comes than can be served, whatever the settings."""
    if facts.waiting_mean is None or facts.running_mean is None or case.described.get("users") is not None:
        return
    if case.described and case.described.get("rate") is None:
        return  # all at one instant: work to be done, not traffic to keep up with
    rows = facts.rows_limit or facts.running_peak or 1
    # Behind a closed batch as many as it holds wait as a matter of course.
    usual = 2 * rows if case.config is not None and case.config.closed else rows
    if facts.busy is None:  # a server that does not say: a queue that goes on growing is what is left to tell by
        grows = (facts.waiting_end or 0) > _GROWN * max(1.0, facts.waiting_middle or 0)
    else:
        long = not (case.config is not None and case.config.closed) and (facts.queue_mean or 0.0) >= _LONG_QUEUE * (
            facts.end_to_end_mean or 1.0
        )
        grows = facts.busy >= _FULL and ((facts.waiting_peak or 0) >= usual or long)
    if not grows or facts.waiting_mean < 0.3 * max(4.0, facts.running_mean):
        return
    if facts.queue_mean is not None and facts.end_to_end_mean and facts.queue_mean < 0.2 * facts.end_to_end_mean:
        return
    yield Finding(
        "overload",
        Stage.INPUT,
        "More comes than can be served: "
        + ("the queue grows." if facts.busy is None else "the device is busy all the time and the queue grows."),
        (
            *((Seen("busy", share(facts.busy), "device time / wall"),) if facts.busy is not None else ()),
            Seen("waiting, mean and peak", f"{facts.waiting_mean:.1f}, {facts.waiting_peak:g}"),
            Seen("running, mean", f"{facts.running_mean:.1f}"),
            *(
                (Seen("time in the queue, mean", f"{seconds(facts.queue_mean)} of {seconds(facts.end_to_end_mean)}"),)
                if facts.queue_mean is not None and facts.end_to_end_mean
                else ()
            ),
        ),
        weight=max(0.35, 0.95 * (facts.queue_mean or 0.0) / (facts.end_to_end_mean or 1.0)),
        confidence=Confidence.LIKELY if facts.busy is not None else Confidence.POSSIBLE,
        advice="Serve less per replica, add one, or refuse early (--max-queued-requests); settings alone will not do.",
    )


_SPARE: Final = 4
"""Times as many as the client sends at once that the server would run."""


def client_concurrency(case: Case, facts: Facts) -> Iterator[Finding]:
    """A closed loop keeps fewer in flight than the server would run: its limit has no effect."""
    users = case.described.get("users")
    if users is None or facts.rows_limit is None or users * _SPARE > facts.rows_limit:
        return
    if (facts.waiting_mean or 0) > 0.5 or (case.config is not None and case.config.policy == "static"):
        return
    setting = rows_setting(case.config) if case.config is not None else "max_num_seqs"
    yield Finding(
        "client_concurrency",
        Stage.INPUT,
        f"The client keeps {users:,} requests in flight, the server would run {facts.rows_limit:,}: throughput is what "
        "the client asks for, and the server's limit has no effect.",
        (
            Seen("users of the closed loop", f"{users:,}"),
            Seen("running, peak", f"{facts.running_peak or 0:g} of {facts.rows_limit:,}"),
            Seen("waiting, mean", f"{facts.waiting_mean or 0:.2f}"),
        ),
        weight=0.3,
        confidence=Confidence.SURE,
        changes=(Change(setting, facts.rows_limit, users),),
        advice="Raise the client's concurrency to see what the server can do, or lower the limit to what is used.",
    )
