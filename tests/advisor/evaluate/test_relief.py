from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chairlift.advisor.evaluate.outcome import Outcome
from chairlift.advisor.evaluate.pool import Pool
from chairlift.advisor.evaluate.relief import CONSTRAINTS, Constraint, faster, reliefs, slower
from chairlift.advisor.evaluate.run import evaluate
from chairlift.devices.curve import Table
from chairlift.devices.model import StepTerms
from chairlift.devices.registry import find_device_model
from chairlift.devices.shape import StepShape
from tests.advisor.evaluate.making import problem, rounds
from tests.sim.helpers import device_model

H100 = find_device_model("h100-sxm/llama-3.1-8b")
TABLED = device_model(
    step=StepTerms(tokens_table=Table((1, 100, 200), (10**13, 2 * 10**13, 5 * 10**13)), per_context=10**6)
)


@given(
    st.integers(1, 64),
    st.integers(1, 2000),
    st.sampled_from(["bandwidth", "compute"]),
    st.sampled_from([H100, TABLED, device_model()]),
)
def test_no_step_gets_slower_by_relief(rows: int, context: int, constraint: Constraint, device: object) -> None:
    """Nor more than twice as fast."""
    model = device if device is H100 or device is TABLED else device_model()
    assert isinstance(model, type(H100))
    for shape in (StepShape.decode(rows, context), StepShape.prefill(rows, context)):
        before, after = model.time(shape), faster(model, constraint).time(shape)
        assert before // 2 - 2 <= after <= before


def test_a_slower_device_is_slower_by_its_share() -> None:
    """Device and host."""
    shape = StepShape.decode(8, 1000)

    assert abs(slower(H100, 0.5).time(shape) - 1.5 * H100.time(shape)) < 1000
    assert abs(slower(TABLED, -0.2).time(shape) - 0.8 * TABLED.time(shape)) < 1000


def gains(pairs: str, **settings: Any) -> dict[str, float]:
    """Of throughput."""
    load = rounds(pairs)
    asked = problem(load, device=H100, **settings)
    base = evaluate(asked, {}, load.first).figures
    assert base is not None
    with Pool(1) as pool:
        return {one.constraint: one.throughput for one in reliefs(pool, asked, {}, load.first, base)}


def test_what_binds_gains_most() -> None:
    """A small pool: memory; long prompts: compute; one sequence at a time: bandwidth."""
    small = gains("arrivals=burst arrivals.size=24 prompt=100 output=100", num_kv_blocks=30, max_num_seqs=64)
    long = gains("arrivals=burst arrivals.size=8 prompt=3000 output=2")
    alone = gains("arrivals=closed arrivals.users=1 prompt=50 output=50 count=4")

    assert max(small, key=lambda name: small[name]) == "memory"
    assert max(long, key=lambda name: long[name]) == "compute"
    assert max(alone, key=lambda name: alone[name]) == "bandwidth"
    assert set(alone) == set(CONSTRAINTS)


def test_a_refusal_is_no_gain() -> None:
    """What cannot run relieved says nothing."""
    load = rounds("arrivals=burst arrivals.size=4 prompt=50 output=5")
    asked = problem(load)
    outcome: Outcome = evaluate(asked, {}, load.first)
    assert outcome.figures is not None
    with Pool(1) as pool:
        found = reliefs(pool, asked, {"max_num_seqs": 0}, load.first, outcome.figures)
    assert {(one.throughput, one.e2e) for one in found} == {(0.0, 0.0)}
