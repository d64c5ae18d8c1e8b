import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.advisor.tune.space import Space, defaults, space_of
from chairlift.core.config import POLICIES, PolicyName, SchedulerConfig
from chairlift.core.errors import ConfigError
from chairlift.devices.registry import find_device_model
from chairlift.devices.valid import ValidRange
from tests.advisor.evaluate.making import problem, rounds
from tests.sim.helpers import device_model

LOAD = rounds("arrivals=poisson arrivals.rate=4 prompt=40 output=12 count=24")
H100 = find_device_model("h100-sxm/llama-3.1-8b")


def spaces() -> dict[PolicyName, Space]:
    """Of each policy on an H100."""
    return {policy: space_of(problem(LOAD, device=H100), LOAD, policy) for policy in POLICIES}


@given(st.data(), st.sampled_from(POLICIES))
def test_every_place_is_a_configuration_that_can_be(data: st.DataObject, policy: PolicyName) -> None:
    """Nothing is asked for that the scheduler refuses at once."""
    space = spaces()[policy]
    places = {one.name: data.draw(st.integers(0, len(one.values) - 1)) for one in space.parameters}
    config = problem(LOAD, device=H100).config(space.settings(places))

    assert config.policy == policy
    assert all(size <= config.max_batch_size for size in config.preferred_batch_sizes)


def test_the_places_of_settings_are_the_nearest() -> None:
    """So that a search can begin with the defaults."""
    space = spaces()["continuous"]
    settings = defaults(problem(LOAD), "continuous")
    again = space.settings(space.places(settings))

    assert again["max_num_batched_tokens"] == SchedulerConfig().max_num_batched_tokens
    assert again["max_num_seqs"] == 24  # 32, but never more than the load has
    assert again["enable_chunked_prefill"] is True
    assert again["prefill_interval"] == 1


def test_what_is_given_and_what_cannot_be_is_no_parameter() -> None:
    """The user's own settings, and sizes beyond the device model's range."""
    small = device_model(valid=ValidRange(tokens=100, rows=9, context=1000, total_context=10_000))
    space = space_of(problem(LOAD, device=small, max_queue_delay=5), LOAD, "dynamic")
    values = {one.name: one.values for one in space.parameters}

    assert "max_queue_delay" not in values
    assert max(values["max_batch_size"]) == 9
    assert max(values["max_num_batched_tokens"]) == 100
    assert {"policy", "batch_size"} <= defaults(problem(LOAD), "static").keys()
    assert "batch_size" not in defaults(problem(LOAD, batch_size=3), "static")


def test_nothing_left_is_an_error() -> None:
    """With what to do."""
    with pytest.raises(ConfigError, match="leave one out"):
        space_of(problem(LOAD, batch_size=3, max_num_batched_tokens=99), LOAD, "static")
