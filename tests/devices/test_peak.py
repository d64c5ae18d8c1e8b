from dataclasses import replace

import pytest

from chairlift.devices.model import HostTerms
from chairlift.devices.peak import most_tokens_per_second
from chairlift.devices.quantities import read_time
from chairlift.devices.valid import ValidRange
from tests.devices.helpers import device_model, terms

NARROW = ValidRange(tokens=1000, rows=4, context=600, total_context=10_000)


def test_the_largest_step_that_the_model_holds_for_is_the_best_where_tokens_are_cheap() -> None:
    """1 ms and 10 us a token, 1 ms of host; at most 600 positions: 600 tokens in 8 ms."""
    model = device_model(terms(fixed="1ms", per_token="10us"), HostTerms(fixed=read_time("1ms")))

    assert most_tokens_per_second(replace(model, valid=NARROW)) == pytest.approx(600 / 0.008)


def test_where_attention_costs_most_a_smaller_step_is_the_best() -> None:
    """1 ms of floor and 1 us a pair: of 1, 2, 4, ... 32 tokens in 1.528 ms are the most a second."""
    model = device_model(terms(fixed="1ms", per_pair="1us"))

    assert most_tokens_per_second(replace(model, valid=NARROW)) == pytest.approx(32 / 0.001528)
