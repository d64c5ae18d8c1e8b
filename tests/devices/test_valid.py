from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ConfigError, OutsideValidRange
from chairlift.devices.shape import StepShape
from chairlift.devices.valid import RangeGuard, ValidRange

RANGE = ValidRange(tokens=100, rows=4, context=50, total_context=150)


@pytest.mark.parametrize(
    ("shape", "what"),
    [
        (StepShape.prefill(4, 26), "104 tokens in a step"),
        (StepShape.decode(5, 1), "5 rows in a step"),
        (StepShape.decode(1, 51), "51 positions of one sequence"),
        (StepShape.decode(4, 40), "160 positions read by the decodes"),
    ],
)
def test_a_step_outside_is_refused_with_the_numbers(shape: StepShape, what: str) -> None:
    """Each limit by itself; the message has the way out."""
    with pytest.raises(OutsideValidRange, match=what) as caught:
        RangeGuard(RANGE, "dev/model").check(shape)
    assert "--outside-range warn" in str(caught.value)


def test_steps_inside_pass() -> None:
    """The limits themselves are inside."""
    guard = RangeGuard(RANGE, "dev/model")

    guard.check(StepShape.decode(3, 50))
    guard.check(StepShape.prefill(2, 50))

    assert guard.warnings == ()


def test_a_jump_is_refused_for_its_last_step() -> None:
    """It begins inside and grows out."""
    guard = RangeGuard(RANGE, "dev/model")

    guard.check(StepShape.decode(1, 41), steps=10)
    with pytest.raises(OutsideValidRange, match="51 positions"):
        guard.check(StepShape.decode(1, 41), steps=11)


def test_with_a_warning_the_simulation_goes_on_and_counts() -> None:
    """Of 20 repeats from 41 on, the last ten are beyond 50; the worst value is told once."""
    guard = RangeGuard(RANGE, "dev/model", "warn")

    guard.check(StepShape.decode(1, 41), steps=20)
    guard.check(StepShape.decode(1, 55), steps=2)
    guard.check(StepShape.decode(1, 20), steps=2)

    assert guard.steps_outside == 12
    assert guard.warnings == (
        "positions of one sequence: up to 60, where dev/model holds to 50; such times are extrapolated.",
    )


@given(
    decode=st.tuples(st.integers(1, 4), st.integers(1, 60)),
    dead=st.tuples(st.integers(0, 2), st.integers(1, 60)),
    steps=st.integers(1, 30),
)
def test_a_run_is_judged_as_its_last_step_is(decode: tuple[int, int], dead: tuple[int, int], steps: int) -> None:
    """Decodes grow, dead rows stay."""
    shape = StepShape.decode(*decode).beside(replace(StepShape.decode(*dead), growth=0, longest_decode=0))

    assert RANGE.excess(shape, steps) == RANGE.excess(shape.after(steps - 1))


def test_another_choice_is_refused() -> None:
    """The flag is named."""
    with pytest.raises(ConfigError, match="--outside-range"):
        RangeGuard(RANGE, "dev/model", "ignore")  # type: ignore[arg-type]
