import pytest

from chairlift.core.config import KVCapacity, SchedulerConfig
from chairlift.core.errors import ConfigError, OutOfDeviceMemory, OutsideValidRange
from chairlift.core.plan import StepPlan, Wait
from chairlift.core.request import Request
from chairlift.core.runs import TokenRuns
from chairlift.core.scheduler import Scheduler
from chairlift.devices.model import HostTerms
from chairlift.devices.registry import find_device_model
from chairlift.devices.valid import ValidRange
from chairlift.runners.simulated import TOKEN, SimulatedRunner
from tests.devices.helpers import MEMORY, device_model, terms

STEP = terms(floor="10ms", per_token="1ms", per_context="1us", per_sequence="3us")
HOST = HostTerms(fixed=2 * 10**12)
"""2 ms."""
POOL = KVCapacity(16, 64, scratch_block=64)


def planned(*prompts: int, steps: int = 1, max_tokens: int = 50) -> tuple[Scheduler, StepPlan]:
    """A scheduler with requests of these prompts, and its plan of step `steps`, counted from 1."""
    scheduler = Scheduler(SchedulerConfig(), POOL)
    for number, tokens in enumerate(prompts):
        scheduler.submit(Request(f"r{number}", range(1000 * number, 1000 * number + tokens), max_tokens), 0)
    while True:
        plan = scheduler.plan(0)
        assert not isinstance(plan, Wait)
        if plan.step == steps - 1:
            return scheduler, plan
        scheduler.commit(plan, SimulatedRunner(device_model(STEP), POOL).execute(plan), 0)


def test_a_step_takes_what_the_device_model_says() -> None:
    """A prompt of 30 tokens: 30 ms and a row of logits; the host's time is not the device's."""
    runner = SimulatedRunner(device_model(STEP, HOST), POOL)
    _, plan = planned(30)

    outcome = runner.execute(plan)
    done = runner.run(plan)

    assert (list(outcome.tokens), outcome.device_time) == ([TOKEN], 30_003_000)
    assert done.outcome == outcome
    assert (done.times, done.wall) == (1, 32_003_000)
    assert [list(run) for run in done.gaps()] == [[1, 32_003_000, 0, 0, 1]]
    assert runner.shape() is None
    assert runner.ready(17) == 17


def test_repeats_end_with_the_step_in_which_something_comes() -> None:
    """Two decodes from 4 and 6 positions on: 12.018 ms and 2 us more each step."""
    runner = SimulatedRunner(device_model(STEP, HOST), POOL)
    scheduler, plan = planned(4, 6, steps=2)
    assert scheduler.horizon(plan) == 49

    once = runner.run(plan).wall
    ends = [runner.run(plan, most).wall for most in range(1, 8)]

    assert once == 12_018_000
    assert [end - before for before, end in zip([0, *ends], ends, strict=False)] == [once + 2000 * k for k in range(7)]
    for k, end in enumerate(ends[:-1], start=1):
        assert runner.run(plan, 7, within=end).times == k, "at its end: not in flight any more"
        assert runner.run(plan, 7, within=end + 1).times == k + 1
    assert runner.run(plan, 7, within=1).times == 1
    assert runner.run(plan, 3, within=10**12).times == 3


def test_a_jump_says_how_long_each_of_its_steps_took() -> None:
    """The device's time by repeat, the time between tokens as runs, and one token over and over."""
    runner = SimulatedRunner(device_model(STEP, HOST), POOL)
    _, plan = planned(4, 6, steps=2)

    done = runner.run(plan, 40)

    assert done.outcome is not None
    assert done.outcome.times is not None
    assert isinstance(done.outcome.tokens, TokenRuns)
    assert list(done.outcome.tokens) == [TOKEN] * 80
    times = [done.outcome.times(k) for k in range(40)]
    assert times == [10_018_000 + 2000 * k for k in range(40)]
    assert done.outcome.device_time == sum(times)
    (run,) = done.gaps()
    assert [run.at(k) for k in range(run.gaps)] == [time + 2_000_000 for time in times]


def test_memory_is_divided_for_the_largest_step_of_any_policy() -> None:
    """512 tokens and the rows of whichever policy has most; a share of 1 leaves the steps themselves no room."""
    config = SchedulerConfig(max_num_seqs=4, batch_size=3, max_batch_size=8)
    runner = SimulatedRunner.of(device_model(STEP, memory=MEMORY), config)
    assert runner.memory is not None
    assert runner.memory.activations == 72 << 20
    assert runner.capacity() == runner.memory.capacity
    assert runner.capacity().num_blocks == 900 - 400 - 50 - 72 - 1

    _, plan = planned(400)
    runner.execute(plan)
    greedy = SimulatedRunner.of(device_model(STEP, memory=MEMORY), config, num_kv_blocks=500)
    with pytest.raises(OutOfDeviceMemory, match="a step of 400 tokens and 1 rows of logits"):
        greedy.execute(plan)


def test_without_memory_the_pool_must_be_given() -> None:
    """The message names the flag; a pool of nothing is refused."""
    model = device_model(STEP)
    with pytest.raises(ConfigError, match="says nothing of memory: set --num-kv-blocks"):
        SimulatedRunner.of(model, SchedulerConfig())
    with pytest.raises(ConfigError, match="0 KV blocks of 16 tokens hold nothing"):
        SimulatedRunner.of(model, SchedulerConfig(), num_kv_blocks=0)

    assert SimulatedRunner.of(model, SchedulerConfig(), num_kv_blocks=9, block_size=4).capacity() == KVCapacity(4, 9, 9)


def test_the_end_of_a_jump_must_lie_in_the_range_as_well() -> None:
    """Repeats are refused, or counted, as single steps would be."""
    valid = ValidRange(tokens=100, rows=8, context=20, total_context=1000)
    model = device_model(STEP)
    narrow = type(model)(**{name: getattr(model, name) for name in model.__slots__} | {"valid": valid})
    _, plan = planned(11, steps=2)

    runner = SimulatedRunner(narrow, POOL)
    runner.run(plan, 9)
    with pytest.raises(OutsideValidRange, match="21 positions of one sequence"):
        runner.run(plan, 10)
    lenient = SimulatedRunner(narrow, POOL, outside="warn")
    lenient.run(plan, 15)
    assert lenient.range.steps_outside == 6


def test_a_built_in_model_runs() -> None:
    """Llama 3.1 8B on an H100 has room for some hundred thousand tokens."""
    model = find_device_model("h100-sxm/llama-3.1-8b")
    runner = SimulatedRunner.of(model, SchedulerConfig(max_num_batched_tokens=8192))

    assert 300_000 < runner.capacity().num_blocks * 16 < 500_000
    assert runner.shape() is model.shape
