from dataclasses import replace
from random import Random
from typing import Any

import pytest

from chairlift.lab.compare.recoverable import StepLine
from chairlift.records.schema import StepRecord

_FIELDS: dict[str, Any] = dict.fromkeys(StepRecord.__annotations__, 0)
IDLE = StepRecord(**_FIELDS | {"policy": "static", "batch": None, "repeats": 1})


def step(prompt: int, decode: int, *, padding: int = 0, dead: int = 0, read: int = 0, noise: float = 1.0) -> StepRecord:
    """20 ms a step, 2 ms a prompt token, 300 us a row, a nanosecond for each ten bytes."""
    time = 20e6 + 2e6 * (prompt + padding) + 3e5 * (decode + dead) + read / 10
    return replace(
        IDLE,
        device_time=round(time * noise),
        prefill=prompt,
        decode=decode,
        padding=padding,
        dead=dead,
        decode_kv_bytes=read,
    )


def test_what_waste_costs_is_found_where_rows_vary() -> None:
    """Steps of one policy whose rows never vary, beside steps of another whose rows do."""
    draw = Random(1)
    read = [draw.randrange(10**7) for _ in range(40)]
    static = [step(0, 6, dead=2, read=one) for one in read] + [step(64, 0, padding=16)]
    others = [step(draw.randrange(60), draw.randrange(1, 16), read=draw.randrange(10**7)) for _ in range(60)]
    line = StepLine.of([*static, *others])

    assert line is not None
    wasted = 16 * 2e6 + sum(2 * 3e5 + one / 10 * 2 / 8 for one in read)
    assert line.recoverable(static) == pytest.approx(wasted / 1e9, rel=1e-3)
    assert line.recoverable(others) == 0


def test_rows_that_cost_nothing_are_worth_nothing() -> None:
    """On a device that is bound by reading its weights, dead rows are free, whatever their share of the tokens."""
    flat = [replace(step(0, rows), device_time=20_000_000 + rows % 3) for rows in range(1, 30)]
    line = StepLine.of(flat)

    assert line is not None
    assert line.recoverable([step(0, 1, dead=31)]) < 1e-5


def test_noise_moves_it_by_as_much() -> None:
    """Five per cent on every step: within a fifth."""
    draw = Random(2)
    steps = [
        step(draw.randrange(60), draw.randrange(1, 16), dead=draw.randrange(8), noise=draw.gauss(1, 0.05))
        for _ in range(300)
    ]
    line = StepLine.of(steps)

    assert line is not None
    assert line.recoverable(steps) == pytest.approx(sum(3e5 * one.dead for one in steps) / 1e9, rel=0.2)


def test_too_few_steps_are_no_line() -> None:
    """Four coefficients need four steps."""
    assert StepLine.of([step(1, 1)] * 3) is None
