from dataclasses import replace

import pytest

from benchmarks._machine import Rates, decode_floor, describe, load_floor, prefill_floor
from chairlift.core.work import ModelShape

SHAPE = ModelShape(
    num_layers=2,
    hidden_size=8,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    intermediate_size=16,
    vocab_size=100,
    layer_weight_bytes=4000,
    head_weight_bytes=1000,
)
RATES = Rates(read=5000.0, sgemm=10_000.0)


def test_one_decode_takes_the_time_to_read_all_weights() -> None:
    """5,000 bytes at 5,000 a second; one row's 3,872 operations would take less."""
    assert decode_floor(RATES, SHAPE, rows=1) == 1.0


def test_many_decodes_take_the_time_of_their_products() -> None:
    """Each row: 2 layers x 2 x (8 x 4 x 6 + 3 x 8 x 16) and 2 x 8 x 100 operations."""
    assert decode_floor(RATES, SHAPE, rows=10) == pytest.approx(10 * (2304 + 1600) / 10_000)


def test_prompts_pay_the_head_once_each() -> None:
    """Layers for every token, the head for the one that is sampled."""
    assert prefill_floor(RATES, SHAPE, [10, 20]) == pytest.approx((30 * 2304 + 2 * 1600) / 10_000)


def test_a_load_is_its_prompts_and_then_lockstep_decodes() -> None:
    """Answers of 3 and 2 tokens: their prompts, a step of two decodes, a step of one."""
    floor = load_floor(RATES, SHAPE, [(10, 3), (20, 2)])

    decodes = decode_floor(RATES, SHAPE, 2) + decode_floor(RATES, SHAPE, 1)
    assert floor == pytest.approx(prefill_floor(RATES, SHAPE, [10, 20]) + decodes)


def test_a_faster_memory_lowers_the_floor_of_one_stream_only() -> None:
    """The same products, twice the bandwidth: many rows gain nothing."""
    faster = replace(RATES, read=10_000.0)

    assert decode_floor(faster, SHAPE, 1) == 0.5
    assert decode_floor(faster, SHAPE, 10) == decode_floor(RATES, SHAPE, 10)


def test_the_machine_says_what_it_is() -> None:
    """A name, at least one core and some memory."""
    machine = describe()

    assert machine.cores >= 1
    assert machine.memory_gib > 0
    assert machine.cpu in str(machine)
