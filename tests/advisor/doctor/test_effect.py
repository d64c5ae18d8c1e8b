from dataclasses import replace

import pytest

from chairlift.advisor.doctor.diagnose import diagnose
from chairlift.advisor.doctor.effect import changed, effect, with_effects
from chairlift.advisor.doctor.finding import Change
from chairlift.advisor.doctor.report import diagnosis_lines
from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import DeviceModelError
from tests.advisor.doctor.ward import H100, SICK, Planted, device_named

BY_NAME = {one.name: one for one in SICK}


def rate(text: str) -> float:
    """The number in front of a unit."""
    return float(text.split(maxsplit=1)[0].replace(",", ""))


def seconds(text: str) -> float:
    """A time as it is written."""
    number, unit = text.split()
    return float(number) * {"s": 1.0, "ms": 1e-3, "us": 1e-6}[unit]


@pytest.mark.parametrize(
    "name", ["four slots", "a pool of three prompts", "seven short answers and a long one", "answers outgrow the pool"]
)
def test_the_change_gives_more_on_the_device_that_the_run_was_made_on(name: str) -> None:
    """More tokens a second than before by the same load, or answers that are sooner."""
    diagnosis = with_effects(diagnose(BY_NAME[name].make()), H100)
    assert diagnosis.first is not None
    told = diagnosis.first.simulated
    tokens = [rate(one) for one in told["output_tokens_per_second"]]
    whole = [seconds(one) for one in told["end_to_end_from_schedule mean"]]

    assert tokens[1] > 1.03 * tokens[0] or whole[1] < 0.8 * whole[0]
    assert tokens[1] >= tokens[0]
    assert "simulated: output_tokens_per_second" in " ".join("\n".join(diagnosis_lines(diagnosis)).split())


def test_of_changes_that_would_each_do_the_best_comes_first() -> None:
    """More memory or fewer at once against preemptions: on this device the first, and what gives less is left out."""
    diagnosis = with_effects(diagnose(BY_NAME["answers outgrow the pool"].make()), H100)
    assert diagnosis.first is not None

    assert diagnosis.first.either
    assert diagnosis.first.changes[0].setting == "num_kv_blocks"


def test_nothing_is_simulated_without_a_load_or_a_setting() -> None:
    """A case whose load is not known, and a finding that changes no setting."""
    planted: Planted = BY_NAME["a load that grows"]
    case = planted.make()
    first = diagnose(case).first
    assert first is not None

    assert effect(case, first, device_named(H100)) is None
    assert effect(replace(case, schedule=None), first, device_named(H100)) is None


def test_a_device_that_there_is_not_is_an_error() -> None:
    """With the closest."""
    with pytest.raises(DeviceModelError, match="h1000"):
        with_effects(diagnose(BY_NAME["four slots"].make()), "h1000/llama-3.1-8b")


def test_changes_as_settings() -> None:
    """Durations are read, and the step's budget follows where more sequences need it."""
    config = SchedulerConfig(policy="static", padding="longest", max_num_batched_tokens=32)

    assert changed(config, (Change("max_wait", None, "20ms"),)).max_wait == 20_000_000
    assert changed(config, (Change("batch_size", 8, 64),)).max_num_batched_tokens == 64
    moved = changed(config, (Change("policy", "static", "continuous"),))
    assert (moved.policy, moved.padding) == ("continuous", None)
    with pytest.raises(ValueError, match="nothing of this"):
        changed(config, (Change("gpu_memory_utilization", 0.9, 0.8),))
