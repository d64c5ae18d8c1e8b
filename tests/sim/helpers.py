"""What the simulator's tests share: small device models, random loads, and records in a form that can be compared."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from chairlift.core.config import POLICIES, KVCapacity, PolicyName, SchedulerConfig
from chairlift.core.errors import ConfigError
from chairlift.core.request import Request
from chairlift.core.runs import Run, TokenRuns
from chairlift.core.work import ModelShape
from chairlift.devices.curve import Table
from chairlift.devices.memory import MemoryModel
from chairlift.devices.model import DeviceModel, HostTerms, Provenance, StepTerms
from chairlift.devices.quantities import PER_NANOSECOND
from chairlift.devices.valid import ValidRange
from chairlift.records.observer import Observer
from chairlift.records.schema import BatchRecord, DecisionRecord, Record, RequestRecord, ShareRecord, StepRecord
from chairlift.runners.simulated import SimulatedRunner
from chairlift.sim.events import Arrival, Departure, OpenLoop, Switch
from chairlift.sim.loop import Simulation, SimulationResult
from tests.core.strategies import Setup

MILLISECOND = 1_000_000
SECOND = 1_000_000_000

SHAPE = ModelShape(
    num_layers=2,
    hidden_size=8,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    intermediate_size=16,
    vocab_size=50,
    layer_weight_bytes=3000,
    head_weight_bytes=400,
)
ANYTHING = ValidRange(tokens=10**9, rows=10**9, context=10**9, total_context=10**12)


def device_model(
    *, step: StepTerms | None = None, host: HostTerms | None = None, memory: MemoryModel | None = None, **more: Any
) -> DeviceModel:
    """20 ms a step, 1 ms a token, a microsecond a position; no host time."""
    ms = MILLISECOND * PER_NANOSECOND
    return DeviceModel(
        device="toy",
        model="tiny",
        tensor_parallel=1,
        provenance=Provenance("analytic, not calibrated"),
        step=step or StepTerms(floor=20 * ms, per_token=ms, per_context=ms // 1000, per_pair=100, per_sequence=77),
        host=host or HostTerms(),
        valid=more.pop("valid", ANYTHING),
        memory=memory,
        **more,
    )


def runner(num_blocks: int = 64, block_size: int = 16, model: DeviceModel | None = None) -> SimulatedRunner:
    """A runner with so many blocks on the toy device."""
    return SimulatedRunner(model or device_model(), KVCapacity(block_size, num_blocks, scratch_block=num_blocks))


def prompt(number: int, tokens: int) -> TokenRuns:
    """A prompt that no other number's begins with."""
    return TokenRuns.of(Run((number + 1) << 24, 1, tokens))


def arrival(
    name: str, time: int = 0, *, tokens: int = 8, answer: int | None = 4, number: int = 0, **more: Any
) -> Arrival:
    """A request of `tokens` and `answer` tokens."""
    fields = {key: more.pop(key) for key in ("output_tokens", "leaves") if key in more}
    number = number or int("".join(filter(str.isdigit, name)) or 0)
    return Arrival(time, Request(name, more.pop("prompt", None) or prompt(number, tokens), answer, **more), **fields)


class Witness(Observer):
    """Keeps every record, in order."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.shares: list[ShareRecord] = []

    def on_step(self, record: StepRecord) -> None:
        self.records.append(record)

    def on_share(self, record: ShareRecord) -> None:
        self.shares.append(record)

    def on_request(self, record: RequestRecord) -> None:
        self.records.append(record)

    def on_decision(self, record: DecisionRecord) -> None:
        self.records.append(record)

    def on_batch(self, record: BatchRecord) -> None:
        self.records.append(record)

    @property
    def steps(self) -> list[StepRecord]:
        return [record for record in self.records if isinstance(record, StepRecord)]

    @property
    def requests(self) -> dict[str, RequestRecord]:
        return {record.request_id: record for record in self.records if isinstance(record, RequestRecord)}

    @property
    def decisions(self) -> list[DecisionRecord]:
        return [record for record in self.records if isinstance(record, DecisionRecord)]

    @property
    def batches(self) -> list[BatchRecord]:
        return [record for record in self.records if isinstance(record, BatchRecord)]


def run(
    arrivals: Iterable[Arrival],
    device: SimulatedRunner | None = None,
    *,
    others: Iterable[Departure | Switch] = (),
    jump: bool = True,
    time_limit: int | None = None,
    **settings: Any,
) -> tuple[SimulationResult, Witness]:
    """Simulate to the end, and check the pool's books there."""
    witness = Witness()
    config = SchedulerConfig(**{"max_model_len": 512, **settings})
    simulation = Simulation(
        config,
        device or runner(),
        OpenLoop(arrivals, others),
        observers=[witness],
        jump=jump,
        time_limit=time_limit,
    )
    result = simulation.run()
    simulation.scheduler.check_integrity()
    return result, witness


def spelled_out(records: Iterable[Record]) -> list[Record]:
    """Records with their times between tokens one by one, as the engine writes them."""
    return [
        replace(one, token_gaps=tuple(one.gaps), gap_runs=()) if isinstance(one, RequestRecord) else one
        for one in records
    ]


def joined(steps: Sequence[StepRecord], like: Sequence[StepRecord]) -> list[StepRecord]:
    """Single steps put together as those rows have them: counts, times and work summed, the most of what was held, the
    state after the last.
    """
    rows, at = [], 0
    sums = ("device_time", "samples", "failures", "prefill", "decode", "recompute", "padding", "dead", "decode_flops",
            "prefill_flops", "weight_bytes", "decode_kv_bytes", "prefill_kv_bytes", "repeats", "preempted")  # fmt: skip
    for row in like:
        part = steps[at : at + row.repeats]
        at += row.repeats
        totals = {name: sum(getattr(step, name) for step in part) for name in sums}
        peak = max(step.kv_most for step in part)
        rows.append(replace(part[-1], step=part[0].step, planned=part[0].planned, kv_peak=peak, **totals))
    assert at == len(steps)
    return rows


def random_model(draw: Random) -> DeviceModel:
    """Steps of microseconds to milliseconds whose times grow by fractions of a nanosecond or by thousands."""

    def scaled(most: int) -> int:
        return draw.randrange(1, 10 ** draw.randint(1, most))

    table = None
    if draw.random() < 0.4:
        xs = sorted(draw.sample(range(300), draw.randint(2, 5)))
        table = Table(tuple(xs), tuple(scaled(12) for _ in xs))
    step = StepTerms(
        floor=scaled(14),
        fixed=scaled(13),
        per_token=scaled(12),
        per_context=scaled(10),
        context_table=table,
        per_pair=scaled(9),
        per_prompt_position=scaled(9),
        per_sequence=scaled(11),
        settling=scaled(13) if draw.random() < 0.5 else 0,
    )
    host = HostTerms(scaled(13), scaled(11)) if draw.random() < 0.7 else HostTerms()
    return device_model(step=step, host=host, shape=SHAPE if draw.random() < 0.5 else None)


def random_arrivals(draw: Random, setup: Setup, span: int) -> list[Arrival]:
    """A dense load: prompts that begin alike, answers of all lengths, some that end early, some clients that leave."""
    room = min(setup.config.max_model_len, setup.capacity.num_blocks * setup.capacity.block_size)
    times = sorted(draw.choice((0, draw.randrange(span))) for _ in range(draw.randint(1, 14)))
    arrivals = []
    for number, time in enumerate(times):
        tokens = draw.randint(1, max(1, room - 1))
        alike = draw.randint(0, tokens)
        runs = (Run((1 + draw.randrange(2)) << 30, 1, alike), Run((number + 9) << 24, 1, tokens - alike))
        most = draw.choice((None, draw.randint(1, max(1, room - tokens)), max(1, room - tokens), room))
        arrivals.append(
            Arrival(
                time,
                Request(
                    f"r{number}",
                    TokenRuns.of(*runs),
                    most,
                    priority=draw.randrange(3),
                    arrival=draw.choice((None, time, max(0, time - draw.randrange(span)))),
                    stop_ids=frozenset({0}) if draw.random() < 0.05 else frozenset(),
                ),
                output_tokens=draw.choice((None, None, 1, draw.randint(1, 60))),
                leaves=time + draw.randrange(span) if draw.random() < 0.15 else None,
            )
        )
    return arrivals


def random_others(draw: Random, setup: Setup, span: int) -> list[Departure | Switch]:
    """Switches that the settings allow."""
    others: list[Departure | Switch] = []
    while draw.random() < 0.3:
        policy: PolicyName = draw.choice(POLICIES)
        changes = {"kv_reservation": None, "padding": None, "release": None, "enable_chunked_prefill": True}
        try:
            setup.config.with_policy(policy, **changes)
        except ConfigError:
            continue
        others.append(Switch(draw.randrange(span), policy, changes))
    return others
