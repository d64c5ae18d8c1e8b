"""Facts from records: the engine's steps, requests, decisions and batches, and the client's traces."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, Final

from chairlift.advisor.doctor.case import Case, counted
from chairlift.advisor.doctor.facts import SOON, STALL, Facts
from chairlift.core.reasons import Reason
from chairlift.lab.measured import reserved_unused
from chairlift.records.client_metrics import token_gaps
from chairlift.records.metrics import percentile
from chairlift.records.schema import RequestRecord, StepRecord
from chairlift.records.usage import usage

_SECOND: Final = 1e9
WAITS: Final = tuple(reason.value for reason in Reason if reason.value.startswith("waiting_for_"))


def facts_of(case: Case) -> Facts:
    """From records."""
    values: dict[str, Any] = {}
    if case.config is not None:
        values["rows_limit"] = case.config.max_rows
    if case.steps:
        values |= _of_steps(case)
    if case.requests:
        values |= _of_requests(case)
    if case.decisions and case.steps:
        values["blocked"] = blocked(case)
    if case.batches:
        values |= _of_batches(case)
    if case.traces:
        values |= _of_traces(case)
    return Facts(**values)


def _of_steps(case: Case) -> dict[str, Any]:
    steps = case.steps
    wall = steps[-1].committed - steps[0].planned
    used = usage(steps)
    device = sum(step.device_time for step in steps)
    total = sum(_tokens(step) for step in steps)
    spans = _spans(steps)
    middle = steps[0].planned + wall // 2
    after_half = next((step for step in steps if step.committed >= middle), steps[-1])
    limit = case.config.max_rows if case.config is not None else None
    found: dict[str, Any] = {
        "wall": wall / _SECOND,
        "busy": used.busy,
        "useful": used.useful,
        "recompute": sum(step.recompute for step in steps) / total if total else None,
        "padding_time": _time_share(steps, "padding", device),
        "dead_time": _time_share(steps, "dead", device),
        "host": sum(step.committed - step.planned - step.device_time for step in steps) / wall if wall else None,
        "running_mean": _mean(spans, [step.running for step in steps]),
        "running_peak": max(step.running for step in steps),
        "waiting_mean": _mean(spans, [step.waiting for step in steps]),
        "waiting_peak": max(step.waiting for step in steps),
        "waiting_end": steps[-1].waiting,
        "waiting_middle": after_half.waiting,
        "kv_peak": max(step.kv_most / step.kv_total for step in steps if step.kv_total),
        "kv_mean": _mean(spans, [step.kv_used / step.kv_total if step.kv_total else 0.0 for step in steps]),
        "preemptions": sum(step.preempted for step in steps),
    }
    if limit is not None and wall:
        full = sum(s for s, step in zip(spans, steps, strict=True) if step.waiting and step.running >= limit)
        found["at_limit"] = full / wall
    if case.capacity is not None:
        found["reserved_unused"] = reserved_unused(steps, case.requests, case.capacity.block_size)
    return found | _step_times(steps)


def _step_times(steps: Sequence[StepRecord]) -> dict[str, Any]:
    """Times of steps by kind."""
    alone: dict[int, list[tuple[float, int]]] = defaultdict(list)
    stretches: Counter[int] = Counter()
    before = 0
    mixed: list[tuple[float, int]] = []
    for step in steps:
        one = (step.device_time / step.repeats / _SECOND, step.repeats)
        if step.prefill or step.recompute:
            if step.decode:
                mixed.append(one)
        elif step.rows:
            alone[step.rows].append(one)
            stretches[step.rows] += step.rows != before
            before = step.rows
    every = [one for group in alone.values() for one in group]
    return {
        "decode_step": weighted_percentile(every, 50) if every else None,
        "mixed_step": weighted_percentile(mixed, 90) if mixed else None,
        "mixed_steps": sum(count for _, count in mixed),
        "stretches": dict(stretches),
        "step_by_rows": {
            rows: weighted_percentile(group, 50)
            for rows, group in sorted(alone.items())
            if sum(count for _, count in group) >= 3
        },
    }


def _of_requests(case: Case) -> dict[str, Any]:
    requests = case.requests
    answered = [one for one in requests if one.finish_reason in ("stop", "length")]
    admitted = [one for one in requests if one.admitted is not None]
    prompts = sum(one.prompt_tokens for one in requests)
    found: dict[str, Any] = {
        "requests": len(requests),
        "queue_mean": fmean((one.admitted or 0) - one.arrival for one in admitted) / _SECOND if admitted else None,
        "cached": sum(one.cached_tokens for one in requests) / prompts if prompts else None,
        "prompt_mean": prompts / len(requests),
    }
    if answered:
        found["output_mean"] = fmean(one.output_tokens for one in answered)
        found["end_to_end_mean"] = fmean(one.released - one.arrival for one in answered) / _SECOND
        firsts = sorted(
            (one.first_token_released - one.arrival) / _SECOND
            for one in answered
            if one.first_token_released is not None
        )
        if firsts:
            found["ttft_mean"], found["ttft_p99"] = fmean(firsts), percentile(firsts, 99)
        if gaps := sorted(gap / _SECOND for one in answered if one.streamed for gap in one.gaps):
            found |= _of_gaps(gaps)
    if case.steps and admitted:
        found["held"] = held(case.steps, admitted) / _SECOND
    failed = [one for one in requests if one.finish_reason == "error"]
    if failed:
        found["errors"] = {"error": len(failed)}
        found["error_text"] = failed[0].error
    return found


def _of_gaps(ordered: Sequence[float]) -> dict[str, Any]:
    """Of times between tokens, ascending."""
    middle = percentile(ordered, 50)
    stalled = len(ordered) - bisect_left(ordered, max(3 * middle, STALL))
    return {"itl_p50": middle, "itl_p99": percentile(ordered, 99), "stalls": stalled / len(ordered)}


def held(steps: Sequence[StepRecord], requests: Iterable[RequestRecord]) -> float:
    """ns: mean time from arrival to admission in which no step was in progress."""
    starts, ends = [step.planned for step in steps], [step.committed for step in steps]
    before = [0, *itertools.accumulate(end - start for start, end in zip(starts, ends, strict=True))]

    def working(until: int) -> int:
        """Time in steps before a moment."""
        at = bisect_left(starts, until)
        return before[at] if at == 0 else before[at - 1] + min(until, ends[at - 1]) - starts[at - 1]

    waits = []
    for one in requests:
        admitted = one.admitted or one.arrival
        waits.append(max(0, (admitted - one.arrival) - (working(admitted) - working(one.arrival))))
    return fmean(waits)


def blocked(case: Case) -> dict[str, float]:
    """See DEFINITIONS: the union over requests of the time in which each reason held."""
    wall = case.steps[-1].committed - case.steps[0].planned
    last: dict[str, tuple[str, int]] = {}
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for decision in case.decisions:
        if (before := last.get(decision.request_id)) is not None and before[0] in WAITS:
            spans[before[0]].append((before[1], decision.time))
        last[decision.request_id] = (decision.reason, decision.time)
    end = case.steps[-1].committed
    for reason, since in last.values():
        if reason in WAITS and end > since:
            spans[reason].append((since, end))
    return {reason: _union(found) / wall for reason, found in spans.items()} if wall else {}


def _union(spans: list[tuple[int, int]]) -> int:
    total, until = 0, None
    for start, end in sorted(spans):
        begin = start if until is None else max(start, until)
        total += max(0, end - begin)
        until = end if until is None else max(until, end)
    return total


def _of_batches(case: Case) -> dict[str, Any]:
    batches = case.batches
    found: dict[str, Any] = {
        "members": tuple(one.members for one in batches),
        "batch_reasons": dict(Counter(one.reason for one in batches)),
    }
    limit = case.config.max_rows if case.config is not None else max(one.members for one in batches)
    arrivals = sorted(one.arrival for one in case.requests)
    missed: list[int] = []
    total = 0
    for one in batches:
        room = limit - one.members
        soon = one.started + round(SOON * (one.ended - one.started))
        low, high = bisect_left(arrivals, one.started), bisect_left(arrivals, soon)
        took = arrivals[low : min(high, low + max(0, room))]
        total += len(took)
        missed += [time - one.started for time in took]
    found["late"] = total / len(arrivals) if arrivals else None
    if missed:
        found["late_within"] = percentile(sorted(missed), 90) / _SECOND
    return found


def _of_traces(case: Case) -> dict[str, Any]:
    summary = case.summary
    traces = counted(case.traces)
    if summary is None:
        return {}
    metrics = {one.metric.name: one for one in summary.distributions}
    found: dict[str, Any] = {"errors": dict(summary.errors)}
    first = metrics["ttft_from_schedule"]
    if first.mean is not None:
        found["ttft_mean"], found["ttft_p99"] = first.mean, first.percentiles[99]
    whole = metrics["end_to_end_from_schedule"]
    if whole.mean is not None:
        found["end_to_end_mean"] = whole.mean
    between = metrics["time_between_tokens"]
    if between.mean is not None and between.observable:
        found["itl_p50"], found["itl_p99"] = between.percentiles[50], between.percentiles[99]
        if not case.requests:
            gaps = sorted(gap / _SECOND for trace in traces if trace.ok for gap in token_gaps(trace) or ())
            found["stalls"] = _of_gaps(gaps)["stalls"]
    rate = next(one for one in summary.rates if one.name == "output_tokens_per_second")
    found["output_rate"] = rate.value if rate.count else None
    if summary.window is not None:
        found["in_flight_peak"] = summary.window.peak
    sizes = [trace.output_tokens for trace in traces if trace.ok and trace.output_tokens is not None]
    if sizes:
        found["output_mean"] = fmean(sizes)
    known = [trace for trace in traces if trace.prompt_tokens and trace.cached_tokens is not None]
    if known:
        found["cached"] = sum(t.cached_tokens or 0 for t in known) / sum(t.prompt_tokens or 0 for t in known)
    found["error_text"] = next((trace.error_message for trace in traces if trace.error_message), "")
    return found


def _tokens(step: StepRecord) -> int:
    return step.prefill + step.decode + step.recompute + step.padding + step.dead


def _time_share(steps: Sequence[StepRecord], kind: str, device: int) -> float | None:
    if not device:
        return None
    own: float = sum(step.device_time * getattr(step, kind) / _tokens(step) for step in steps if _tokens(step))
    return own / device


def _spans(steps: Sequence[StepRecord]) -> list[int]:
    """How long each step's state lasted: until the next is committed; the last one's not at all."""
    times = [step.committed for step in steps]
    return [after - before for before, after in itertools.pairwise(times)] + [0]


def _mean(spans: Sequence[int], values: Sequence[float]) -> float:
    whole = sum(spans)
    return sum(s * v for s, v in zip(spans, values, strict=True)) / whole if whole else float(values[-1])


def weighted_percentile(values: Iterable[tuple[float, int]], percent: float) -> float:
    """The smallest value that at least so many per cent of the weight do not exceed."""
    ordered = sorted(values)
    wanted = percent / 100 * sum(weight for _, weight in ordered)
    reached = 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= wanted:
            return value
    return ordered[-1][0]
