import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ContractError, DeviceModelError
from chairlift.devices.curve import Table
from chairlift.devices.model import HostTerms, StepTerms
from chairlift.devices.shape import StepShape
from tests.devices.helpers import COEFFICIENTS, device_model, step_terms, terms

decodes = st.builds(
    lambda rows, dead, context: StepShape(
        rows + dead, rows + dead, rows + dead, context=context, growth=rows, longest=context, longest_decode=context
    ),
    st.integers(1, 64),
    st.integers(0, 8),
    st.integers(1, 4_000),
)


@given(
    step=step_terms(), host=st.builds(HostTerms, COEFFICIENTS, COEFFICIENTS), shape=decodes, steps=st.integers(1, 80)
)
def test_jumping_takes_exactly_as_long_as_stepping(
    step: StepTerms, host: HostTerms, shape: StepShape, steps: int
) -> None:
    """The property a simulator jumps by: whatever the coefficients and tables, to the nanosecond."""
    model = device_model(step, host)

    stepped = [model.time(shape.after(k)) for k in range(steps)]

    assert model.time(shape, steps) == sum(stepped)
    assert list(model.ends(shape, steps)) == list(itertools.accumulate(stepped))


@given(step=step_terms(), shape=decodes, steps=st.integers(1, 80))
def test_the_repeats_of_a_jump_are_known_one_by_one(step: StepTerms, shape: StepShape, steps: int) -> None:
    """As a few pieces, each of which gives the device's time of its steps to the nanosecond."""
    model = device_model(step)

    pieces = list(model.repeats(shape, steps))

    times = [(start + k * rise) // divisor for count, start, rise, divisor in pieces for k in range(count)]
    assert times == [model.device_time(shape.after(k)) for k in range(steps)]
    assert len(pieces) <= 8


@given(step=step_terms(), shape=decodes, steps=st.integers(2, 60), cut=st.integers(1, 59))
def test_a_jump_can_be_cut_anywhere(step: StepTerms, shape: StepShape, steps: int, cut: int) -> None:
    """An arrival in the middle of a jump changes no duration."""
    model, cut = device_model(step), 1 + cut % (steps - 1)

    assert model.time(shape, cut) + model.time(shape.after(cut), steps - cut) == model.time(shape, steps)


@given(step=step_terms(), shape=decodes, most=st.integers(0, 60), budget=st.integers(0, 10**9))
def test_steps_within_a_budget_are_all_that_fit(step: StepTerms, shape: StepShape, most: int, budget: int) -> None:
    """One step more would exceed the budget or the limit."""
    model = device_model(step)

    steps = model.steps_within(shape, budget, most)

    assert 0 <= steps <= most
    assert model.time(shape, steps) <= budget
    assert steps == most or model.time(shape, steps + 1) > budget


def test_a_step_costs_what_its_formula_says() -> None:
    """Two decodes of 100 beside a prompt of 50, with every term in use."""
    model = device_model(
        terms(
            floor="1ms",
            fixed="100us",
            per_token="30us",
            per_context="10ns",
            per_pair="1ns",
            per_prompt_position="20ns",
            per_sequence="5us",
            link_fixed="40us",
            link_per_token="2us",
        ),
        HostTerms(10**11, 10**9),
    )
    shape = StepShape.decode(2, 100).beside(StepShape.prefill(1, 50))

    assert model.parts(shape) == {
        "matrix products": 100_000 + 52 * 30_000,
        "attention (decode)": 200 * 10,
        "attention (prefill)": 50 * 51 // 2 + 50 * 20,
        "head and sampling": 3 * 5_000,
        "communication": 40_000 + 52 * 2_000,
        "host": 100_000 + 3 * 1_000,
    }
    assert model.time(shape) == sum(model.parts(shape).values())


def test_a_small_step_costs_the_floor() -> None:
    """Every weight is read once whatever the batch: 1 and 30 tokens take equally long."""
    model = device_model(terms(floor="1ms", per_token="30us"))

    assert model.device_time(StepShape.decode(1, 1)) == model.device_time(StepShape.decode(30, 1)) == 1_000_000
    assert model.device_time(StepShape.decode(40, 1)) == 1_200_000


def test_prompt_rows_have_their_own_floor() -> None:
    """Where decodes run in a captured graph and prompts do not; the larger of both floors holds."""
    model = device_model(terms(floor="1ms", prompt_floor="3ms"))

    assert model.device_time(StepShape.decode(4, 10)) == 1_000_000
    assert model.device_time(StepShape.decode(4, 10).beside(StepShape.prefill(1, 8))) == 3_000_000


def test_a_table_stands_for_floor_and_line() -> None:
    """Between 8 and 16 tokens, half-way."""
    model = device_model(StepTerms(floor=10**15, tokens_table=Table((8, 16), (8 * 10**9, 24 * 10**9))))

    assert model.device_time(StepShape.decode(12, 1)) == 16_000


def test_a_step_with_prompt_rows_is_never_repeated() -> None:
    """Its lengths would not be all that changes."""
    with pytest.raises(ContractError, match="2 prompt rows"):
        device_model().device_time(StepShape.prefill(2, 10), 2)


def test_a_negative_coefficient_is_refused() -> None:
    """No step is faster for being larger."""
    with pytest.raises(DeviceModelError, match="per_token"):
        StepTerms(per_token=-1)
    with pytest.raises(DeviceModelError, match="fixed"):
        HostTerms(fixed=-1)
