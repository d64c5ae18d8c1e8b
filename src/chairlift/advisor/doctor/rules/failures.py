"""Requests that were refused, failed or got nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from chairlift.advisor.doctor.case import Case, counted
from chairlift.advisor.doctor.facts import Facts
from chairlift.advisor.doctor.finding import Change, Confidence, Finding, Seen, Stage, seconds, share
from chairlift.records.client import ErrorClass

_MEMORY: Final = re.compile(
    r"out of (device )?memory|OutOfMemory|CUDA error: out|cannot allocate|bad_alloc", re.IGNORECASE
)
_TOO_LONG: Final = re.compile(
    r"longest sequence allowed|max[_-]model[_-]len|maximum context length|context (size|length)|max_total_tokens",
    re.IGNORECASE,
)
_WHOLE_POOL: Final = re.compile(r"whole pool|KV blocks of", re.IGNORECASE)


def _failed(case: Case) -> list[tuple[str, str]]:
    """(class, message) of each failed request."""
    if case.traces:
        return [
            (str(trace.error), trace.error_message)
            for trace in counted(case.traces)
            if trace.error is not None and trace.error not in (ErrorClass.CUT, ErrorClass.UNSENT)
        ]
    return [("error", one.error) for one in case.requests if one.finish_reason == "error"]


def _total(case: Case) -> int:
    return len(counted(case.traces)) or len(case.requests)


def out_of_memory(case: Case, facts: Facts) -> Iterator[Finding]:
    """Steps or requests failed for lack of device memory: the share against the largest step."""
    found = [message for _, message in _failed(case) if _MEMORY.search(message)]
    if not found and not _MEMORY.search(facts.error_text):
        return
    used = case.settings.get("gpu_memory_utilization")
    changes = [Change("gpu_memory_utilization", used, round((used or 0.9) - 0.05, 2))]
    if case.config is not None:
        lower = max(case.config.max_rows, case.config.max_num_batched_tokens // 2)
        changes.append(Change("max_num_batched_tokens", case.config.max_num_batched_tokens, lower))
    yield Finding(
        "out_of_memory",
        Stage.CONFIGURATION,
        "The device ran out of memory: the KV pool leaves too little for the activations of the largest steps.",
        (
            Seen("requests that failed so", f"{max(1, len(found)):,} of {_total(case):,}"),
            Seen("the first was told", found[0] if found else facts.error_text),
        ),
        weight=1.9,
        confidence=Confidence.SURE,
        changes=tuple(changes),
        either=True,
        advice="A pool that was sized at start stays; what grows later is a step's activations, with its tokens.",
        expected="no step fails; the pool is a little smaller",
    )


def refused_too_long(case: Case, facts: Facts) -> Iterator[Finding]:
    """Requests longer than max_model_len, or than the whole pool."""
    refused = [message for kind, message in _failed(case) if kind == ErrorClass.REJECTED]
    for pattern, setting, why in (
        (_TOO_LONG, "max_model_len", "longer than the longest sequence allowed"),
        (_WHOLE_POOL, "num_kv_blocks", "larger than the whole KV pool"),
    ):
        found = [message for message in refused if pattern.search(message)]
        if not found:
            continue
        wanted = case.described.get("longest")
        before = case.config.max_model_len if case.config is not None else None
        yield Finding(
            "refused_too_long",
            Stage.CONFIGURATION,
            f"Requests are refused at the door: they are {why}.",
            (
                Seen("requests refused", f"{len(found):,} of {_total(case):,}"),
                Seen("the first was told", found[0]),
            ),
            weight=0.5 + len(found) / max(1, _total(case)),
            confidence=Confidence.SURE,
            changes=(Change(setting, before, wanted),) if setting == "max_model_len" and wanted else (),
            advice="The message says what the request would need.",
            expected="these requests are answered; each may hold more of the KV pool",
        )
        refused = [message for message in refused if not pattern.search(message)]


def refused_queue_full(case: Case, facts: Facts) -> Iterator[Finding]:
    """The queue's bound was reached: too slow for what comes, or too small a bound for a burst."""
    found = [message for kind, message in _failed(case) if kind == ErrorClass.OVERLOADED]
    if not found:
        return
    lost = len(found) / max(1, _total(case))
    busy = facts.busy
    burst = busy is not None and busy < 0.7
    bound = case.config.max_queued_requests if case.config is not None else None
    yield Finding(
        "refused_queue_full",
        Stage.CONFIGURATION if burst else Stage.INPUT,
        "Requests are turned away because the queue is full"
        + (", although the device has time left: the bound is too small for the bursts." if burst else "."),
        (
            Seen("requests turned away", f"{len(found):,} of {_total(case):,}"),
            *((Seen("busy", share(busy), "device time / wall"),) if busy is not None else ()),
            Seen("the first was told", found[0]),
        ),
        weight=(1.2 if burst else 0.3) * min(1.0, lost + 0.3),
        confidence=Confidence.SURE if burst else Confidence.LIKELY,
        changes=(Change("max_queued_requests", bound, 4 * bound),) if burst and bound else (),
        advice="" if burst else "What comes is more than is served; a longer queue would only make everyone wait.",
    )


def cut_short(case: Case, facts: Facts) -> Iterator[Finding]:
    """A run that was killed: what was under way, all of it perhaps, left no trace."""
    if case.complete:
        return
    ended = len(counted(case.traces)) or len(case.requests)
    yield Finding(
        "cut_short",
        Stage.SYMPTOM,
        "The run did not come to its end: what is there says nothing of what was under way.",
        (Seen("requests that had ended", f"{ended:,}"),),
        weight=2.5 if not ended else 0.05,
        confidence=Confidence.SURE,
        advice="" if ended else "Nothing can be judged by it. Run it again, or look into the server's log.",
        note=bool(ended),
    )


_FEW: Final = 0.001


def failed(case: Case, facts: Facts) -> Iterator[Finding]:
    """Requests that failed otherwise: their own words say why."""
    ours = {ErrorClass.REJECTED, ErrorClass.OVERLOADED, ErrorClass.CLIENT}
    found = [(kind, message) for kind, message in _failed(case) if kind not in ours and not _MEMORY.search(message)]
    if len(found) <= _FEW * _total(case):
        return
    yield Finding(
        "failed",
        Stage.SYMPTOM,
        f"Requests fail ({', '.join(sorted({kind for kind, _ in found}))}).",
        (Seen("requests failed", f"{len(found):,} of {_total(case):,}"), Seen("the first was told", found[0][1])),
        weight=0.6 + min(1.0, len(found) / max(1, _total(case))),
        confidence=Confidence.SURE,
        advice="Look into the server's log at that moment; time limits of the client show as timeout or cut.",
    )


_LONG: Final = 0.5
"""Share of a run in which requests waited and nothing was computed."""


def stuck(case: Case, facts: Facts) -> Iterator[Finding]:
    """Requests wait and nothing is computed: a batch that never fills, or a server that hangs."""
    details = facts.details
    if details.get("stuck_for"):
        yield Finding(
            "stuck",
            Stage.SYMPTOM,
            "Requests wait and nothing is generated.",
            (
                Seen("watched", seconds(details["stuck_for"])),
                Seen("waiting, mean", f"{facts.waiting_mean or 0:.1f}"),
                Seen("output tokens", "0"),
            ),
            weight=1.8,
            confidence=Confidence.LIKELY,
            advice="See whether the queue's head can ever be admitted: its length against the KV pool, and the log.",
        )
        return
    config = case.config
    unfinished = [trace for trace in counted(case.traces) if trace.error is ErrorClass.CUT]
    if not unfinished or not case.traces:
        return
    end = max(trace.end for trace in case.traces)
    last = max((step.committed for step in case.steps), default=min(trace.scheduled for trace in case.traces))
    start = min(trace.scheduled for trace in case.traces)
    silent = (end - last) / max(1, end - start)
    if silent < _LONG or any(trace.first_content is not None for trace in unfinished):
        return
    static = config is not None and config.policy == "static" and config.max_wait is None
    yield Finding(
        "stuck",
        Stage.CONFIGURATION if static else Stage.SYMPTOM,
        f"{len(unfinished):,} requests wait for ever: a static batch starts when it is full, and it does not fill."
        if static
        else f"{len(unfinished):,} requests wait and nothing is computed.",
        (
            Seen("unfinished at the end", f"{len(unfinished):,} of {_total(case):,}"),
            Seen("nothing was computed for", seconds((end - last) / 1e9)),
        ),
        weight=1.8,
        confidence=Confidence.SURE if static else Confidence.LIKELY,
        changes=(Change("max_wait", None, "1s"),) if static else (),
        expected="an unfilled batch starts when its oldest request has waited that long" if static else "",
    )
