"""One small function for each cause, in the order in which a case is looked at.

    failures       requests refused, failed, stuck; out of memory
    asked          the input: lengths, arrivals, concurrency, cache hits, and the client itself
    closed         static and dynamic batching
    continuous     continuous batching
    memory         the KV pool
    resources      device, host, machine
    version        what a framework's version means

A rule is given the case and its facts and yields findings; unknown figures mean that it yields none. Its thresholds
stand above it, with why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from chairlift.advisor.doctor.case import Case
from chairlift.advisor.doctor.facts import Facts
from chairlift.advisor.doctor.finding import Finding
from chairlift.advisor.doctor.rules import asked, closed, continuous, failures, memory, resources, version

Rule = Callable[[Case, Facts], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    failures.out_of_memory,
    failures.refused_too_long,
    failures.refused_queue_full,
    failures.failed,
    failures.cut_short,
    failures.stuck,
    asked.client_bottleneck,
    asked.warm_cache,
    asked.truncated_outputs,
    asked.not_stationary,
    asked.overload,
    asked.client_concurrency,
    closed.straggler_waste,
    closed.padding_waste,
    closed.waits_to_fill,
    closed.batch_never_fills,
    closed.delay_too_long,
    closed.delay_without_effect,
    closed.delay_too_short,
    closed.preferred_size_caps,
    continuous.slots_short,
    continuous.prefill_interference,
    continuous.budget_too_small,
    continuous.prompts_held_back,
    continuous.batch_cliff,
    memory.preemption_thrash,
    memory.kv_too_small,
    memory.reservation_too_large,
    memory.both_maxima,
    memory.sharing_off,
    resources.host_bound,
    resources.machine_starved,
    resources.device_memory_full,
    resources.device_idle,
    version.old_defaults,
)
