import gc
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings

from chairlift.core.config import PolicyName, SchedulerConfig
from chairlift.core.errors import EngineUnhealthy, OutOfDeviceMemory, OutsideValidRange
from chairlift.core.ledger import Category
from chairlift.core.reasons import Reason
from chairlift.core.request import FinishReason, Refused
from chairlift.core.runs import Run, TokenRuns
from chairlift.devices.memory import MemoryModel
from chairlift.devices.model import HostTerms
from chairlift.devices.quantities import PER_NANOSECOND
from chairlift.devices.shape import StepShape
from chairlift.devices.valid import ValidRange
from chairlift.records.observer import Observer
from chairlift.records.schema import RequestRecord, StepRecord
from chairlift.runners.simulated import SimulatedRunner
from chairlift.sim.events import Arrival, Departure, Event, OpenLoop, Switch
from chairlift.sim.loop import Simulation, simulate
from tests.core.strategies import SEEDS, random_setup
from tests.sim.helpers import (
    MILLISECOND,
    SECOND,
    Witness,
    arrival,
    device_model,
    joined,
    random_arrivals,
    random_model,
    random_others,
    run,
    runner,
    spelled_out,
)


class Life:
    """One random load under random settings on a random device, simulated."""

    def __init__(self, of_setup: int, seed: int, *, jump: bool) -> None:
        setup, draw = random_setup(of_setup), Random(seed)
        model = random_model(draw)
        span = 10 ** draw.randint(5, 10)
        self.witness = Witness()
        self.simulation = Simulation(
            setup.config,
            SimulatedRunner(model, setup.capacity),
            OpenLoop(random_arrivals(draw, setup, span), random_others(draw, setup, span)),
            observers=[self.witness],
            jump=jump,
            time_limit=draw.randrange(span, 10 * span) if draw.random() < 0.2 else None,
        )
        self.result = self.simulation.run()
        self.pool = self.simulation.scheduler._state.pool


@settings(max_examples=max(150, settings().max_examples))
@given(of_setup=SEEDS, seed=SEEDS)
def test_jumping_and_stepping_lead_to_the_same_records(of_setup: int, seed: int) -> None:
    """Whatever policy, settings, device and load: the same steps, requests, decisions, batches, ledger, counters and
    blocks, to the nanosecond.
    """
    jumped, stepped = Life(of_setup, seed, jump=True), Life(of_setup, seed, jump=False)

    ours, theirs = jumped.witness, stepped.witness
    assert ours.steps == joined(theirs.steps, like=ours.steps)
    assert spelled_out(ours.requests.values()) == spelled_out(theirs.requests.values())
    assert ours.shares == theirs.shares
    assert ours.decisions == theirs.decisions
    assert ours.batches == theirs.batches
    for name in ("started", "ended", "ledger", "counters", "refusals", "cut"):
        assert getattr(jumped.result, name) == getattr(stepped.result, name)
    jumped.simulation.scheduler.check_integrity()
    for name in ("_free", "_references", "_keys", "_index", "evictions"):
        assert getattr(jumped.pool, name) == getattr(stepped.pool, name)


def test_the_random_lives_do_jump_and_do_everything() -> None:
    """The property above is not met by loads in which nothing happens."""
    lives = [Life(seed, seed, jump=True) for seed in range(150)]

    assert sum(life.result.steps > 1.5 * life.result.plans for life in lives) > 30
    requests = [record for life in lives for record in life.witness.requests.values()]
    assert {record.finish_reason for record in requests} >= {
        FinishReason.STOP,
        FinishReason.LENGTH,
        FinishReason.CANCELLED,
    }
    assert sum(record.preemptions > 0 for record in requests) > 3
    assert sum(record.cached_tokens > 0 for record in requests) > 20
    assert sum(not record.streamed for record in requests) > 20
    assert {life.simulation.scheduler.config.policy for life in lives} == {"static", "dynamic", "continuous"}
    assert any(life.result.cut for life in lives)
    assert any(life.result.refusals for life in lives)
    assert sum(len({step.policy for step in life.witness.steps}) > 1 for life in lives) > 5


def test_one_request_takes_the_time_that_the_device_model_says() -> None:
    """A prefill of 8 tokens, and 9 decodes as one jump, each a little longer than the one before."""
    model = device_model(host=HostTerms(5 * MILLISECOND * PER_NANOSECOND))

    result, witness = run([arrival("r1", 7, tokens=8, answer=10)], runner(model=model))

    prefill, decodes = witness.steps
    assert (prefill.prefill, prefill.repeats, decodes.repeats, decodes.decode) == (8, 1, 9, 9)
    assert (result.steps, result.plans) == (10, 2)
    # 36 pairs of 100 fs and a row of logits, 77 fs; then 9 to 17 positions of a microsecond.
    assert prefill.committed == 7 + 20 * MILLISECOND + 5 * MILLISECOND
    gaps = [25 * MILLISECOND + 1000 * context for context in range(9, 18)]
    assert list(witness.requests["r1"].gaps) == gaps
    assert decodes.device_time == sum(gaps) - 9 * 5 * MILLISECOND
    assert result.ended == decodes.committed == prefill.committed + sum(gaps)


def test_a_jump_ends_with_the_step_in_which_somebody_comes() -> None:
    """Steps of 20 to 21 ms: who comes at 100 ms is let in after the fifth, at whose end it is in the queue."""
    arrivals = [arrival("r1", answer=50), arrival("r2", 100 * MILLISECOND, answer=2)]

    _, witness = run(arrivals)

    first, second, third, *_ = witness.steps
    assert (first.repeats, second.repeats) == (1, 4)
    assert second.committed - 21 * MILLISECOND < 100 * MILLISECOND < second.committed
    assert second.waiting == 1
    assert witness.requests["r2"].arrival == 100 * MILLISECOND
    assert witness.requests["r2"].admitted == third.planned == second.committed
    accepted = next(one for one in witness.decisions if one.request_id == "r2")
    assert (accepted.reason, accepted.step) == (Reason.ACCEPTED, 4)


def test_who_comes_at_the_end_of_a_step_is_in_the_next() -> None:
    """Not in flight, and not one step later."""
    _, alone = run([arrival("r1", answer=50)])
    end = alone.steps[0].committed + sum(list(alone.requests["r1"].gaps)[:7])

    _, witness = run([arrival("r1", answer=50), arrival("r2", end)])

    assert witness.steps[1].repeats == 7
    assert witness.steps[1].waiting == 0
    assert witness.requests["r2"].admitted == end


@pytest.mark.parametrize("jump", [True, False])
def test_an_answer_may_end_before_its_bound(*, jump: bool) -> None:
    """The model gives 5 tokens where 100 are allowed, and reserved: it ends with stop; one token is the least."""
    arrivals = [arrival("r1", answer=100, output_tokens=5), arrival("r2", answer=100, output_tokens=1)]
    arrivals += [arrival("r3", answer=4, output_tokens=9)]

    _, witness = run(arrivals, jump=jump)

    found = {name: (record.output_tokens, record.finish_reason) for name, record in witness.requests.items()}
    assert found == {"r1": (5, "stop"), "r2": (1, "stop"), "r3": (4, "length")}
    assert len(witness.requests["r1"].gaps) == 4


def test_a_client_that_leaves_ends_its_request_with_the_step_in_flight() -> None:
    """It gave up at 95 ms, in the fifth step; it had five tokens."""
    arrivals = [arrival("r1", answer=50, leaves=95 * MILLISECOND), arrival("r2", answer=50)]

    _, witness = run(arrivals)

    record = witness.requests["r1"]
    assert (record.finish_reason, record.output_tokens) == (FinishReason.CANCELLED, 5)
    assert record.released == witness.steps[1].committed
    assert 95 * MILLISECOND < record.released < 120 * MILLISECOND
    assert witness.requests["r2"].output_tokens == 50


def test_a_dynamic_batch_leaves_at_the_end_of_its_delay_exactly() -> None:
    """A Wait names its end, and virtual time is there at once."""
    arrivals = [arrival("r1", 3 * MILLISECOND), arrival("r2", 10 * MILLISECOND), arrival("r3", SECOND)]

    result, witness = run(arrivals, policy="dynamic", max_queue_delay=50 * MILLISECOND)

    assert witness.steps[0].planned == 53 * MILLISECOND
    assert witness.batches[0].members == 2
    assert result.ledger.times[Category.HELD] == 50 * MILLISECOND
    assert sum(result.ledger.times.values()) == result.ledger.wall == result.wall


def test_the_last_arrival_is_the_end_of_the_input() -> None:
    """A static batch that will not fill leaves with it; with no arrival at all nothing happens."""
    _, witness = run([arrival("r1"), arrival("r2", SECOND)], policy="static", batch_size=8)
    assert [(one.members, one.started) for one in witness.batches] == [(2, SECOND)]

    result, nothing = run([])
    assert (result.ended, nothing.records) == (0, [])


def test_a_switch_is_made_live() -> None:
    """A running static batch is adopted, in the middle of what would have been a jump."""
    arrivals = [arrival(f"r{n}", answer=60) for n in range(2)]

    _, witness = run(arrivals, others=[Switch(SECOND, "continuous")], policy="static", batch_size=2)

    before, after = [step for step in witness.steps if step.policy == "static"], witness.steps[-1]
    assert before[-1].committed > SECOND > before[-1].committed - 25 * MILLISECOND
    assert after.policy == "continuous"
    assert after.planned == before[-1].committed
    assert all(record.output_tokens == 60 for record in witness.requests.values())
    with pytest.raises(Exception, match="not reserved for at start"):
        run(arrivals, others=[Switch(SECOND, "continuous", {"max_num_batched_tokens": 4096})])


def test_a_time_limit_cuts_what_is_in_progress() -> None:
    """With the step in flight; nobody is taken in after it."""
    arrivals = [arrival("r1", answer=9), arrival("r2", answer=400), arrival("r3", 2 * SECOND)]

    result, witness = run(arrivals, time_limit=SECOND)

    assert result.cut == 1
    assert {name: record.finish_reason for name, record in witness.requests.items()} == {
        "r1": FinishReason.LENGTH,
        "r2": FinishReason.CANCELLED,
    }
    assert SECOND <= result.ended < SECOND + 25 * MILLISECOND
    idle, _ = run([arrival("r1", 5 * SECOND)], time_limit=SECOND)
    assert (idle.ended, idle.counters.accepted) == (SECOND, 0)


def test_who_is_refused_is_counted_with_an_example() -> None:
    """At the door as in the engine: too long, and too many."""
    arrivals = [arrival(f"r{n}", tokens=600 if n < 2 else 8) for n in range(9)]

    result, witness = run(arrivals, max_queued_requests=3)

    assert {reason: one.count for reason, one in result.refusals.items()} == {
        Reason.PROMPT_TOO_LONG: 2,
        Reason.QUEUE_FULL: 4,
    }
    assert "--max-model-len" in result.refusals[Reason.PROMPT_TOO_LONG].example
    assert len(witness.requests) == 3


class ClosedLoop:
    """Users who ask again when they are answered, a second later; after ten requests nobody asks any more."""

    def __init__(self, users: int) -> None:
        self._due = [0] * users
        self._asked = 0
        self.refusals: list[int] = []

    def next(self) -> int | None:
        return min(self._due, default=None)

    def take(self, before: int) -> Sequence[Event]:
        if not self._due or min(self._due) >= before:
            return ()
        time = min(self._due)
        self._due.remove(time)
        self._asked += 1
        return (arrival(f"r{self._asked}", time, answer=9),)

    def refused(self, arrival: Arrival, verdict: Refused) -> None:
        self.refusals.append(arrival.time)

    def ended(self, request_id: str, now: int, *, well: bool) -> None:
        assert well
        if self._asked < 10:
            self._due.append(now + SECOND)


def test_a_source_may_wait_for_answers() -> None:
    """The next request comes a second after the end of the one before."""
    witness = Witness()
    simulate(SchedulerConfig(), runner(), ClosedLoop(1), observers=[witness])

    records = list(witness.requests.values())
    assert len(records) == 10
    for before, after in pairwise(records):
        assert after.arrival == before.released + SECOND


def test_a_batch_that_can_never_fill_is_an_error_with_the_setting() -> None:
    """Three users who wait for each other in a static batch of four would wait for ever."""
    with pytest.raises(EngineUnhealthy, match=r"3 requests wait .* lower --batch-size 4, or set --max-wait"):
        simulate(SchedulerConfig(policy="static", batch_size=4), runner(), ClosedLoop(3))

    simulate(SchedulerConfig(policy="static", batch_size=3), runner(), ClosedLoop(3))


def test_what_an_observer_raises_ends_the_simulation() -> None:
    """Records that cannot be written are no records."""

    class Full(Observer):
        def on_step(self, record: StepRecord) -> None:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        simulate(SchedulerConfig(), runner(), OpenLoop([arrival("r1")]), observers=[Full()])


def test_without_observers_the_same_happens() -> None:
    """Only the records are missing."""
    arrivals = [arrival(f"r{n}", n * 30 * MILLISECOND, answer=40) for n in range(20)]
    seen, _ = run(arrivals)

    unseen = simulate(SchedulerConfig(max_model_len=512), runner(), OpenLoop(arrivals))

    assert unseen == seen


def test_a_step_too_large_for_the_memory_left_runs_out_of_it() -> None:
    """A KV pool that leaves room for steps of 100 tokens: a prompt of 250 in one step fails, with the way out."""
    mib = 1 << 20
    memory = MemoryModel(
        capacity=1000 * mib, weights=500 * mib, runtime=50 * mib, kv_bytes_per_token=mib // 16, unseen=40 * mib,
        activation_per_token=mib // 4,
    )  # fmt: skip
    config = SchedulerConfig(max_model_len=512, max_num_batched_tokens=256)
    device = SimulatedRunner.of(device_model(memory=memory), config, gpu_memory_utilization=0.99)
    prompts = [arrival("r1", tokens=80, answer=30), arrival("r2", SECOND, tokens=250)]

    with pytest.raises(OutOfDeviceMemory, match="Lower --gpu-memory-utilization") as failed:
        simulate(config, device, OpenLoop(prompts))
    assert "step 30" in "".join(failed.value.__notes__)

    roomy = SimulatedRunner.of(device_model(memory=memory), config, gpu_memory_utilization=0.9)
    assert simulate(config, roomy, OpenLoop(prompts)).counters.finished[FinishReason.LENGTH] == 2


def test_outside_the_device_models_range_it_refuses_or_warns() -> None:
    """A sequence of more than 40 positions, on a device model that was made for 40."""
    model = device_model(valid=ValidRange(tokens=100, rows=4, context=40, total_context=1000))
    arrivals = [arrival("r1", tokens=30, answer=21)]
    capacity = runner().capacity()

    with pytest.raises(OutsideValidRange, match=r"50 positions of one sequence; the model toy/tiny holds up to 40"):
        run(arrivals, SimulatedRunner(model, capacity))

    for jump in (True, False):
        device = SimulatedRunner(model, capacity, outside="warn")
        run(arrivals, device, jump=jump)
        assert device.range.steps_outside == 10
        assert device.range.warnings[0].startswith("positions of one sequence: up to 50, where toy/tiny holds to 40")


def test_shared_prefixes_are_real_hits() -> None:
    """A system prompt of 64 tokens is computed once; a second turn finds the first one's prompt and answer."""
    system = Run(7 << 40, 1, 64)
    first = TokenRuns.of(system, Run(1 << 24, 1, 20))
    second_turn = TokenRuns.of(*first.runs(), Run(0, 0, 40), Run(2 << 24, 1, 10))
    arrivals = [
        arrival("r1", prompt=first, answer=40),
        arrival("r2", 5 * SECOND, prompt=TokenRuns.of(system, Run(3 << 24, 1, 20)), answer=4),
        arrival("r3", 10 * SECOND, prompt=second_turn, answer=4),
    ]

    result, witness = run(arrivals)

    cached = {name: record.cached_tokens for name, record in witness.requests.items()}
    assert cached == {"r1": 0, "r2": 64, "r3": (84 + 39) // 16 * 16}
    assert result.counters.prefix_hits == 64 + 112


def _endless(requests: int, answer: int) -> Iterator[Arrival]:
    """Requests that come one after the other, so that few are held at once."""
    for number in range(requests):
        yield arrival(f"r{number}", number * answer * 25 * MILLISECOND, number=number + 1, tokens=40, answer=answer)


class _Scale(Observer):
    """Weighs what is held, when the 20th request and when each hundredth leaves."""

    def __init__(self) -> None:
        self.left = 0
        self.bytes: list[int] = []

    def on_request(self, record: RequestRecord) -> None:
        self.left += 1
        if self.left == 20 or self.left % 100 == 0:
            gc.collect()  # also empties the lists of objects that Python keeps for reuse
            self.bytes.append(tracemalloc.get_traced_memory()[0])


def _weighed(requests: int, answer: int, policy: PolicyName) -> tuple[list[int], int]:
    """Bytes held as time goes on, and at most, beyond those held before the start."""
    device, scale = runner(num_blocks=64, block_size=1 << 17), _Scale()
    config = SchedulerConfig(policy=policy, max_model_len=1 << 18, max_queue_delay=0)
    simulation = Simulation(config, device, OpenLoop(_endless(requests, answer)), observers=[scale])
    tracemalloc.start()
    simulation.run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return scale.bytes, peak


@pytest.mark.parametrize("policy", ["continuous", "dynamic"])
def test_memory_is_flat_in_the_number_of_tokens(policy: PolicyName) -> None:
    """Twenty times the requests, or a thousand times the tokens of each, 400,000 in all: hardly a byte more."""
    held, small = _weighed(400, 20, policy)
    _, large = _weighed(20, 20_000, policy)

    assert max(held) < held[0] + 2000
    assert large < small + 20_000


def test_a_departure_of_nobody_is_no_error() -> None:
    """The answer may have crossed it."""
    result, _ = run([arrival("r1")], others=[Departure(SECOND, "r1"), Departure(0, "nobody")])

    assert result.counters.finished[FinishReason.LENGTH] == 1


def test_the_first_of_a_row_of_decodes_settles() -> None:
    """After prompts, and after another number of rows; in a jump once, as in steps, and counted before what comes."""
    ms = 10**6
    base = device_model()
    model = replace(base, step=replace(base.step, settling=3 * ms * PER_NANOSECOND))

    def made(*, jump: bool) -> tuple[list[int], list[int]]:
        arrivals = [arrival("r1", 0, answer=9), arrival("r2", 100 * ms, answer=4)]
        result, witness = run(arrivals, runner(model=model), jump=jump)
        return [result.ended, result.ledger.device], [
            gap for name in ("r1", "r2") for gap in witness.requests[name].gaps
        ]

    assert made(jump=True) == made(jump=False)
    gaps = made(jump=True)[1]
    plain = model.device_time(StepShape.decode(1, 9))
    assert gaps[0] == plain + 3 * ms
    assert gaps[1] == model.device_time(StepShape.decode(1, 10))


class Requests(Observer):
    """Wants nothing but requests."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []

    def on_request(self, record: RequestRecord) -> None:
        self.records.append(record)


@given(SEEDS)
@settings(max_examples=20)
def test_whoever_wants_only_requests_sees_the_same_ones(seed: int) -> None:
    """Whether somebody beside it wants steps, for whom alone they are recorded, or not."""
    draw = Random(seed)
    setup = random_setup(seed)
    model, span = random_model(draw), 10**8
    arrivals, others = random_arrivals(draw, setup, span), random_others(draw, setup, span)

    def seen(*beside: Observer) -> tuple[list[RequestRecord], int]:
        alone = Requests()
        device = SimulatedRunner(model, setup.capacity)
        try:
            result = simulate(setup.config, device, OpenLoop(arrivals, others), observers=[alone, *beside])
        except EngineUnhealthy:
            return alone.records, 0
        return alone.records, result.ended

    witness = Witness()
    assert seen() == seen(witness)
    assert list(witness.requests.values()) == seen()[0]
