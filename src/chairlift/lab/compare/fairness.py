"""What makes a comparison of the policies unfair or empty on a load: said before anybody believes its figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from chairlift.core.config import PolicyName, SchedulerConfig
from chairlift.lab.loads.arrivals import Burst, ClosedLoop
from chairlift.lab.loads.describe import Description
from chairlift.lab.loads.lengths import FixedLength
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.request import ScheduledRequest
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.measured import Measured
from chairlift.lab.studies.words import number, percent

_ALIKE = 0.03
"""Throughputs this close together under all policies, with idle time, are the arrivals'."""
_IDLE = 0.1


def offline(load: Load) -> bool:
    """Whether everything is there at one instant, so that whoever sends it may sort it."""
    return isinstance(load.arrivals, Burst) and load.arrivals.every is None and load.sessions is None


class SortedSchedule(Schedule):
    """An offline load in the order that suits closed batches: by the answer's bound, then by the prompt.

    Only what the sender knows is used, and bounds are what he sends. Where max_tokens is the answer's exact length, as
    it is unless the load says otherwise, no order is better for static batching.
    """

    def __iter__(self) -> Iterator[ScheduledRequest]:
        ordered = sorted(super().__iter__(), key=lambda one: (one.max_tokens, one.prompt_tokens))
        return (replace(request, index=index) for index, request in enumerate(ordered))


def before_runs(load: Load, described: Description, config: SchedulerConfig) -> Iterator[str]:
    """What the load and the settings alone tell.

    Args:
        load: what will be asked.
        described: its numbers.
        config: the settings that all policies share.
    """
    if described.output.cv2 == 0:
        yield (
            f"all answers have {described.output.max:,} tokens: a load of one length hides what scheduling gains, for "
            "nobody waits for a straggler. Compare on lengths like your own."
        )
    if isinstance(load.arrivals, ClosedLoop):
        yield (
            f"a closed loop of {load.arrivals.users} users slows down with the target: its latencies say nothing about "
            "users who come at a rate of their own, and a slow policy is spared its queue. Take open arrivals for that."
        )
    in_flight = described.peak_concurrency_at_least
    if described.users is not None and in_flight < config.max_num_seqs:
        yield (
            f"never more than {in_flight} requests are in flight: --max-num-seqs {config.max_num_seqs} has no effect "
            "above that."
        )
    if described.shared_tokens > 0 and not config.enable_prefix_caching:
        yield (
            f"{percent(described.shared_tokens)} of the prompt tokens are shared, and prefix caching is off for all "
            "policies: it would help each of them."
        )
    bound = load.max_tokens
    if bound is not None and bound > described.output.mean:
        yield (
            f"answers end {number(bound / described.output.mean)} times earlier on average than --max-tokens {bound} "
            "allows: closed batches reserve the whole bound, continuous only what is used. Real bounds are often like "
            "that; with tight ones static and dynamic hold more requests."
        )
    if isinstance(load.output, FixedLength) and load.max_tokens is None and not load.ignore_eos:
        yield "answers may end at the model's end-of-sequence token: their lengths are the model's, not the load's."
    if config.release is not None:
        yield (
            f"--release {config.release} lets closed batches answer before they end: their first tokens come "
            "earlier than a batch API's do."
        )
    queued = config.max_queued_requests
    if queued and described.requests > queued and described.users is None:
        yield (
            f"the load has {described.requests:,} requests and --max-queued-requests is {queued}: under a slow policy "
            "some may be refused, which makes it look faster than it is. Raise the flag, or look at the failures."
        )


def after_runs(runs: Mapping[PolicyName, Sequence[Measured]]) -> Iterator[str]:
    """What only the runs show."""
    rates = {name: [one.tokens_per_second or 0.0 for one in several] for name, several in runs.items()}
    means = {name: sum(values) / len(values) for name, values in rates.items()}
    engines = [one.engine for several in runs.values() for one in several]
    idle = [one.idle / one.wall for one in engines if one is not None and one.wall]
    best = max(means.values(), default=0.0)
    alike = bool(best) and min(means.values()) > (1 - _ALIKE) * best
    if alike and idle and min(idle) > _IDLE:
        yield (
            f"throughput is within {_ALIKE:.0%} under all policies, and the engine was idle for {percent(min(idle))} "
            "or more of each run: it is the arrivals' rate, not a limit of any policy. Compare latencies, or raise "
            "the rate."
        )
    for name, several in runs.items():
        failed = sum(one.failed for one in several)
        if failed:
            yield f"{name}: {failed} requests failed; what it did not answer, it did not have to compute."
        if any(one.result.client.bottleneck for one in several):
            yield f"{name}: the client was the bottleneck in a run; its figures are the client's."
        if any(one.result.summary.stationarity.ttft_grows for one in several):
            yield (
                f"{name}: its time to first token grew as long as requests came, so its latencies depend on how long "
                "the run was: the rate is more than it can take."
            )
    preempted = sum(one.preemptions for one in engines if one is not None)
    if preempted:
        yield (
            f"{preempted} preemptions: the KV pool is short for continuous batching here, and recomputing costs it "
            "time. A larger pool (--num-kv-blocks, --gpu-memory-utilization) or a lower --max-num-seqs is fairer to it."
        )
