"""Runs with one thing wrong, and runs with nothing wrong, made on the simulator.

Each case is a load, a device and settings; what is wrong is one of these. A few are spoilt afterwards, where the fault
lies outside the engine: a late client, a warm cache, answers that end early, a device that fails.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from chairlift.advisor.doctor.case import Case, Kept
from chairlift.core.config import SchedulerConfig
from chairlift.devices.curve import Table
from chairlift.devices.model import DeviceModel, HostTerms
from chairlift.devices.quantities import read_time
from chairlift.devices.registry import find_device_model
from chairlift.lab.loads.compare import LoadRecord
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.simulation import simulate_load
from chairlift.records.client import ErrorClass, HealthSample, RequestTrace
from chairlift.runners.simulated import SimulatorSettings

SECOND = 10**9
CHAT = (
    "prompt=lognormal prompt.median=300 prompt.sigma=0.7 prompt.max=1500 "
    "output=exponential output.mean=120 output.cap=500"
)
EVEN = "prompt=128 output=64"
H100 = "h100-sxm/llama-3.1-8b"
L4 = "l4/qwen2.5-7b"


@dataclass(frozen=True)
class Planted:
    """A case to be."""

    name: str
    cause: str | None
    """The rule that should come first; None: nothing is wrong."""
    load: str
    config: Mapping[str, Any] = field(default_factory=dict)
    device: str = H100
    settings: Mapping[str, Any] = field(default_factory=dict)
    spoil: Callable[[Case], Case] | None = None
    time_limit: int | None = None

    def make(self) -> Case:
        """Run it."""
        case = simulated(self)
        return case if self.spoil is None else self.spoil(case)


def simulated(planted: Planted) -> Case:
    """The load on the device with the settings, as a case."""
    config = SchedulerConfig(**planted.config)
    schedule = Schedule(load_from_pairs(planted.load.split()))
    settings = SimulatorSettings(**{"outside_range": "warn", **planted.settings})
    kept = Kept()
    run = simulate_load(
        schedule,
        device_named(planted.device),
        config,
        settings=settings,
        observers=[kept],
        time_limit=planted.time_limit,
    )
    return Case(
        name=planted.name,
        config=config,
        settings=dict(planted.settings),
        capacity=run.capacity,
        traces=run.traces,
        steps=kept.steps,
        requests=kept.requests,
        decisions=kept.decisions,
        batches=kept.batches,
        load=LoadRecord.of(schedule).to_json(),
        schedule=schedule,
        server="chairlift",
        version="0.1.0",
    )


@cache
def device_named(name: str) -> DeviceModel:
    """A built-in device, or one with something wrong with it."""
    if name == "cliff":
        base = find_device_model(H100)
        sizes, times = (0, 24, 25, 4096), ("6.8ms", "7.5ms", "14ms", "120ms")
        table = Table(sizes, tuple(read_time(time) for time in times))
        return replace(base, device="cliff", step=replace(base.step, tokens_table=table))
    if name == "slow host":
        base = find_device_model(H100)
        return replace(base, device=name, host=HostTerms(read_time("9ms"), read_time("50us")))
    return find_device_model(name)


def late_client(case: Case) -> Case:
    """A client that sends 40 ms late and whose loop lags as much."""
    lag = 40_000_000
    traces = [
        replace(trace, sent=min(trace.end, (trace.sent or 0) + lag), first_byte=None, written=None)
        if trace.sent is not None and (trace.first_content or trace.end) > trace.sent + lag
        else trace
        for trace in case.traces
    ]
    health = [
        HealthSample(
            time=(number + 1) * SECOND,
            interval=SECOND,
            loop_lags=(lag,) * 20,
            sent=5,
            send_lag_max=lag,
            in_flight=3,
            chunks=100,
            thread_cpu=0.99,
            process_cpu=1.0,
            pressure=0.2,
        )
        for number in range(20)
    ]
    return replace(case, traces=traces, health=health)


def described(case: Case, **changes: Any) -> Case:
    """With another description of its load."""
    return replace(case, load={**case.load, "description": {**case.load["description"], **changes}})


def warm(case: Case) -> Case:
    """The prompts were put to it before: this load by itself shares nothing."""
    return described(case, shared_tokens=0.0)


def cut_short(case: Case) -> Case:
    """The load wanted twice as much."""
    output = case.load["description"]["output"]
    return described(case, output={**output, "mean": 2 * output["mean"]})


def memory_fails(case: Case) -> Case:
    """Every tenth request ends with the device out of memory."""
    message = "a step of 2,048 tokens needs 400 MiB for activations: CUDA out of memory"

    def spoilt(trace: RequestTrace) -> RequestTrace:
        if trace.index % 10:
            return trace
        return replace(trace, error=ErrorClass.SERVER, error_message=message, status=500, finish_reason=None)

    return replace(case, traces=[spoilt(trace) for trace in case.traces], settings={"gpu_memory_utilization": 0.98})


def _sick() -> tuple[Planted, ...]:
    chat = f"{CHAT} seed=1"
    offline = "arrivals=burst prompt=128 seed=3"
    few = {"max_num_seqs": 64, "max_num_batched_tokens": 512}
    return (
        Planted("four slots", "slots_short", f"arrivals=poisson arrivals.rate=20 count=80 {chat}",
                {"max_num_seqs": 4}),
        Planted("eight slots for a burst", "slots_short", f"arrivals=burst arrivals.size=60 {chat}",
                {"max_num_seqs": 8}),
        Planted("two slots on an L4", "slots_short", f"arrivals=poisson arrivals.rate=2 count=50 {chat}",
                {"max_num_seqs": 2}, device=L4),
        Planted("a pool of three prompts", "kv_too_small",
                "arrivals=poisson arrivals.rate=10 count=100 prompt=1000 output=32 seed=2",
                {**few, "watermark": 0.05}, settings={"num_kv_blocks": 210}),
        Planted("a pool too small for full reservations", "kv_too_small",
                "arrivals=poisson arrivals.rate=12 count=100 prompt=900 output=40 seed=2",
                {**few, "kv_reservation": "full"}, settings={"num_kv_blocks": 240}),
        Planted("answers outgrow the pool", "preemption_thrash",
                "arrivals=burst arrivals.size=30 prompt=64 output=400 seed=4",
                {**few, "watermark": 0.0}, settings={"num_kv_blocks": 250}),
        Planted("answers outgrow the pool, online", "preemption_thrash",
                "arrivals=poisson arrivals.rate=12 count=80 prompt=200 output=400 seed=5",
                {**few, "watermark": 0.0}, settings={"num_kv_blocks": 450}),
        Planted("whole prompts in one step", "prefill_interference",
                "arrivals=poisson arrivals.rate=3 count=40 prompt=bimodal prompt.short=100 prompt.long=6000 "
                "prompt.ratio=1:1 output=200 seed=6",
                {"max_num_seqs": 64, "enable_chunked_prefill": False, "max_num_batched_tokens": 8192,
                 "max_model_len": 8192}),
        Planted("chunks of 8,192 tokens", "prefill_interference",
                "arrivals=poisson arrivals.rate=4 count=50 prompt=5000 output=150 seed=7",
                {"max_num_seqs": 64, "max_num_batched_tokens": 8192, "max_model_len": 8192}),
        Planted("chunks of 4,096 on an L4", "prefill_interference",
                "arrivals=poisson arrivals.rate=0.3 count=60 prompt=3000 output=120 seed=8",
                {"max_num_seqs": 16, "max_num_batched_tokens": 4096, "max_model_len": 8192}, device=L4),
        Planted("seven short answers and a long one", "straggler_waste",
                f"{offline} arrivals.size=64 output=bimodal output.short=20 output.long=600 output.order=cycle",
                {"policy": "static"}),
        Planted("a long tail in dynamic batches", "straggler_waste",
                "arrivals=poisson arrivals.rate=8 count=150 prompt=100 output=exponential output.mean=100 "
                "output.cap=600 seed=9",
                {"policy": "dynamic", "max_batch_size": 16}),
        Planted("prompts of 50 beside 3,000", "padding_waste",
                "arrivals=burst arrivals.size=64 prompt=bimodal prompt.short=50 prompt.long=3000 output=16 seed=10",
                {"policy": "static", "max_model_len": 4096, "max_num_batched_tokens": 4096}),
        Planted("uneven prompts in dynamic batches", "padding_waste",
                "arrivals=poisson arrivals.rate=10 count=200 prompt=lognormal prompt.median=200 prompt.sigma=1.3 "
                "prompt.max=3500 output=8 seed=11",
                {"policy": "dynamic", "max_model_len": 4096, "max_batch_size": 8, "max_num_batched_tokens": 4096,
                 "max_queue_delay": SECOND // 2}),
        Planted("a static batch of 16, two a second", "waits_to_fill",
                f"arrivals=poisson arrivals.rate=2 count=160 {EVEN} seed=12", {"policy": "static", "batch_size": 16}),
        Planted("a static batch of 32, five a second", "waits_to_fill",
                f"arrivals=poisson arrivals.rate=5 count=192 {EVEN} seed=13", {"policy": "static", "batch_size": 32}),
        Planted("batches of up to 64 and no delay", "batch_never_fills",
                f"arrivals=poisson arrivals.rate=8 count=200 {EVEN} seed=14",
                {"policy": "dynamic", "max_batch_size": 64, "max_queue_delay": 5_000_000}),
        Planted("batches of up to 128", "batch_never_fills",
                f"arrivals=poisson arrivals.rate=15 count=300 {EVEN} seed=15",
                {"policy": "dynamic", "max_batch_size": 128, "max_queue_delay": 10_000_000}),
        Planted("a delay of three seconds", "delay_too_long",
                f"arrivals=poisson arrivals.rate=6 count=200 {EVEN} seed=16",
                {"policy": "dynamic", "max_batch_size": 32, "max_queue_delay": 3 * SECOND}),
        Planted("a delay of a second for short answers", "delay_too_long",
                "arrivals=poisson arrivals.rate=5 count=200 prompt=64 output=24 seed=17",
                {"policy": "dynamic", "max_batch_size": 8, "max_queue_delay": SECOND}),
        Planted("a delay for lonely requests", "delay_without_effect",
                f"arrivals=poisson arrivals.rate=0.2 count=60 {EVEN} seed=18",
                {"policy": "dynamic", "max_batch_size": 4, "max_queue_delay": SECOND // 4}),
        Planted("no delay for clumps", "delay_too_short",
                "arrivals=gamma arrivals.rate=3 arrivals.cv=6 count=200 prompt=128 output=128 seed=19",
                {"policy": "dynamic", "max_batch_size": 16, "max_queue_delay": 0}),
        Planted("a preferred size of three", "preferred_size_caps",
                f"arrivals=poisson arrivals.rate=12 count=150 {EVEN} seed=20",
                {"policy": "dynamic", "max_batch_size": 16, "preferred_batch_sizes": (3,),
                 "max_queue_delay": 10 * SECOND}),
        Planted("four users for 64 slots", "client_concurrency",
                f"arrivals=closed arrivals.users=4 count=60 {chat}", {"max_num_seqs": 64}),
        Planted("twice what an L4 serves", "overload",
                f"arrivals=poisson arrivals.rate=25 count=180 {chat}",
                {"max_num_seqs": 64, "max_num_batched_tokens": 256}, device=L4),
        Planted("a load that grows", "not_stationary",
                f"arrivals=ramp arrivals.start_rate=1 arrivals.end_rate=20 arrivals.over=20s count=200 {chat}",
                {"max_num_seqs": 128}),
        Planted("a load seen before", "warm_cache",
                "arrivals=poisson arrivals.rate=5 count=100 prompt=100 output=64 prefix.tokens=400 seed=21",
                {"max_num_seqs": 64}, spoil=warm),
        Planted("answers that end early", "truncated_outputs", f"arrivals=poisson arrivals.rate=8 count=80 {chat}",
                {"max_num_seqs": 64}, spoil=cut_short),
        Planted("a client without time", "client_bottleneck", f"arrivals=poisson arrivals.rate=8 count=80 {chat}",
                {"max_num_seqs": 64}, spoil=late_client),
        Planted("a share of 0.98", "out_of_memory", f"arrivals=poisson arrivals.rate=8 count=80 {chat}",
                {"max_num_seqs": 64}, spoil=memory_fails),
        Planted("a model length of 512", "refused_too_long", f"arrivals=poisson arrivals.rate=8 count=100 {chat}",
                {"max_num_seqs": 64, "max_model_len": 512}),
        Planted("a queue of eight", "refused_queue_full",
                f"arrivals=burst arrivals.size=60 arrivals.every=10s count=180 {chat}",
                {"max_num_seqs": 32, "max_queued_requests": 8}),
        Planted("a batch of 16 for eight users", "stuck", f"arrivals=closed arrivals.users=8 count=64 {EVEN} seed=22",
                {"policy": "static", "batch_size": 16}, time_limit=60 * SECOND),
        Planted("64 tokens a step", "budget_too_small",
                "arrivals=poisson arrivals.rate=1.5 count=60 prompt=4000 output=60 seed=23",
                {"max_num_seqs": 64, "max_num_batched_tokens": 64, "max_model_len": 8192}),
        Planted("prompts in one step of fifty", "prompts_held_back",
                f"arrivals=poisson arrivals.rate=8 count=80 {chat}",
                {"max_num_seqs": 64, "prefill_interval": 80, "prefill_interval_load": 0.0}),
        Planted("6.3 ms between tokens", "prompts_held_back",
                f"arrivals=poisson arrivals.rate=8 count=80 {chat}",
                {"max_num_seqs": 64, "target_itl": 6_300_000}),
        Planted("a cliff at 25 sequences", "batch_cliff", f"arrivals=poisson arrivals.rate=15 count=200 {chat}",
                {"max_num_seqs": 40}, device="cliff"),
        Planted("blocks for the whole model length", "reservation_too_large",
                f"arrivals=poisson arrivals.rate=15 count=100 {chat}",
                {"max_num_seqs": 64, "kv_reservation": "model_len", "max_model_len": 4096},
                settings={"num_kv_blocks": 1600}),
        Planted("max_tokens of 3,000", "reservation_too_large",
                f"arrivals=poisson arrivals.rate=15 count=100 {chat} max_tokens=3000 ignore_eos=false",
                {"max_num_seqs": 64, "kv_reservation": "full", "max_model_len": 8192},
                settings={"num_kv_blocks": 1600}),
        Planted("equal beginnings computed anew", "sharing_off",
                "arrivals=poisson arrivals.rate=10 count=100 prompt=100 output=64 prefix.tokens=1500 seed=24",
                {"max_num_seqs": 64, "enable_prefix_caching": False}),
        Planted("a slow host", "host_bound", f"arrivals=closed arrivals.users=32 count=100 {chat}",
                {"max_num_seqs": 32}, device="slow host"),
    )  # fmt: skip


def _healthy() -> tuple[Planted, ...]:
    chat = f"{CHAT} seed=31"
    return (
        Planted("chat at an easy rate", None, f"arrivals=poisson arrivals.rate=6 count=100 {chat}",
                {"max_num_seqs": 64}),
        Planted("chat at a good rate", None, f"arrivals=poisson arrivals.rate=14 count=160 {chat}",
                {"max_num_seqs": 96}),
        Planted("32 users", None, f"arrivals=closed arrivals.users=32 count=140 {chat}", {"max_num_seqs": 48}),
        Planted("64 users, as many slots", None, f"arrivals=closed arrivals.users=64 count=200 {chat}",
                {"max_num_seqs": 64}),
        Planted("equal requests offline in static batches", None,
                f"arrivals=burst arrivals.size=128 {EVEN} seed=32", {"policy": "static", "batch_size": 16}),
        Planted("nearly equal requests offline", None,
                "arrivals=burst arrivals.size=96 prompt=uniform prompt.min=110 prompt.max=128 output=uniform "
                "output.min=90 output.max=100 seed=33", {"policy": "static", "batch_size": 8}),
        Planted("even requests in dynamic batches", None,
                f"arrivals=poisson arrivals.rate=9 count=200 {EVEN} seed=34",
                {"policy": "dynamic", "max_batch_size": 8, "max_queue_delay": 20_000_000}),
        Planted("bursts of eight in dynamic batches", None,
                f"arrivals=burst arrivals.size=8 arrivals.every=2s count=160 {EVEN} seed=35",
                {"policy": "dynamic", "max_batch_size": 8}),
        Planted("equal beginnings, shared", None,
                "arrivals=poisson arrivals.rate=8 count=100 prompt=100 output=64 prefix.tokens=800 seed=36",
                {"max_num_seqs": 64}),
        Planted("long prompts in pieces", None,
                "arrivals=poisson arrivals.rate=1 count=40 prompt=4000 output=100 seed=37",
                {"max_num_seqs": 32, "max_model_len": 8192}),
        Planted("traffic and silence", None,
                f"arrivals=on-off arrivals.rate=12 arrivals.on=5s arrivals.off=10s count=150 {chat}",
                {"max_num_seqs": 64}),
        Planted("chat on an L4", None, f"arrivals=poisson arrivals.rate=0.6 count=60 {chat}",
                {"max_num_seqs": 32, "max_num_batched_tokens": 256}, device=L4),
        Planted("conversations", None,
                "arrivals=closed arrivals.users=16 sessions.turns=4 prompt=80 output=60 count=120 seed=38",
                {"max_num_seqs": 32}),
    )  # fmt: skip


SICK = _sick()
HEALTHY = _healthy()
