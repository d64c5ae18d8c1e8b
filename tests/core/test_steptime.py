from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.steptime import StepCost, StepFeatures, StepTimePredictor

MIXED = [
    StepFeatures(prompt, rows, rows * context)
    for prompt, rows, context in ((0, 1, 50), (128, 0, 0), (64, 8, 200), (0, 32, 300), (512, 4, 10), (0, 8, 900))
]
"""Steps that differ in every feature, so that each cost can be told from the others."""


def _fed(cost: StepCost, steps: int, noise: int = 0) -> StepTimePredictor:
    predictor = StepTimePredictor()
    for i in range(steps):
        features = MIXED[i % len(MIXED)]
        predictor.observe(features, cost.time(features) + noise * (-1) ** (i // len(MIXED)))
    return predictor


@pytest.mark.parametrize(
    "cost",
    [
        StepCost(20_000_000, 400_000, 900_000, 1_500),
        StepCost(5_000_000, 10_000, 0, 0),
        StepCost(100, 50, 20, 3),
        StepCost(3e9, 7e6, 2e7, 1e5),
    ],
)
def test_it_finds_the_costs_that_made_the_times(cost: StepCost) -> None:
    """From exact times of mixed steps, each coefficient is recovered, from nanoseconds to seconds."""
    found = _fed(cost, 60).cost()

    assert found is not None
    for features in MIXED:
        assert found.time(features) == pytest.approx(cost.time(features), rel=0.01, abs=2)
    assert found.fixed == pytest.approx(cost.fixed, rel=0.03, abs=5)
    assert found.per_prompt_token == pytest.approx(cost.per_prompt_token, rel=0.03, abs=5)
    assert found.per_row == pytest.approx(cost.per_row, rel=0.05, abs=cost.fixed / 500)
    assert found.per_context == pytest.approx(cost.per_context, rel=0.05, abs=cost.fixed / 50_000)


def test_nothing_is_predicted_before_there_is_enough_to_go_by() -> None:
    """Eight steps, twice the unknowns."""
    cost = StepCost(1000, 10, 10, 1)
    assert _fed(cost, 7).cost() is None
    assert _fed(cost, 8).cost() is not None


def test_steps_without_a_duration_tell_nothing() -> None:
    """A device that reports zero is not a device of infinite speed."""
    predictor = StepTimePredictor()
    for _ in range(20):
        predictor.observe(MIXED[0], 0)
        predictor.observe(MIXED[0], -5)
    assert (predictor.steps, predictor.cost()) == (0, None)


def test_it_follows_a_machine_that_gets_slower() -> None:
    """After some hundred steps at twice the cost the prediction is the new one within five per cent."""
    predictor = _fed(StepCost(1_000_000, 5_000, 40_000, 20), 300)
    slower = StepCost(2_000_000, 10_000, 80_000, 40)
    for i in range(900):
        predictor.observe(MIXED[i % len(MIXED)], slower.time(MIXED[i % len(MIXED)]))

    found = predictor.cost()

    assert found is not None
    for features in MIXED:
        assert found.time(features) == pytest.approx(slower.time(features), rel=0.05)


def test_one_slow_step_does_not_matter_much() -> None:
    """A pause of the whole machine is forgotten among a hundred ordinary steps."""
    cost = StepCost(1_000_000, 5_000, 40_000, 20)
    predictor = _fed(cost, 100)
    predictor.observe(MIXED[0], 100 * cost.time(MIXED[0]))
    for i in range(16):
        predictor.observe(MIXED[i % len(MIXED)], cost.time(MIXED[i % len(MIXED)]))

    found = predictor.cost()

    assert found is not None
    assert found.time(MIXED[3]) == pytest.approx(cost.time(MIXED[3]), rel=0.05)


_FEATURES = st.builds(StepFeatures, st.integers(0, 5000), st.integers(0, 300), st.integers(0, 500_000))


@given(st.lists(st.tuples(_FEATURES, st.integers(1, 10**10)), min_size=8, max_size=40), _FEATURES)
def test_no_cost_is_ever_negative(steps: list[tuple[StepFeatures, int]], asked: StepFeatures) -> None:
    """Whatever contradictory times it is fed: more work is never predicted to take less time."""
    predictor = StepTimePredictor()
    for features, duration in steps:
        predictor.observe(features, duration)

    cost = predictor.cost()

    assert cost is not None
    assert min(cost.fixed, cost.per_prompt_token, cost.per_row, cost.per_context) >= 0
    assert cost.time(asked) >= 0
    more = StepFeatures(asked.prompt_tokens + 1, asked.rows + 1, asked.context + 1)
    assert cost.time(more) >= cost.time(asked)


def test_equal_histories_predict_equally() -> None:
    """A pure function of what it is fed: a replay predicts the same, to the last bit."""
    first, second = (_fed(StepCost(1000, 7, 3, 0.1), 50, noise=100).cost() for _ in range(2))
    assert first == second


_COSTS = st.builds(
    StepCost,
    st.floats(0, 1e8),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.floats(0, 1e4),
)


@given(_COSTS, st.integers(0, 50), st.integers(0, 5000), st.integers(0, 60))
def test_a_decode_run_is_the_sum_of_its_steps(cost: StepCost, rows: int, context: int, steps: int) -> None:
    """Each of `steps` steps reads `rows` positions more than the one before; rounding apart, one call is their sum."""
    single = sum(cost.time(StepFeatures(0, rows, context + rows * i)) for i in range(steps))
    assert cost.decode_run(rows=rows, context=context, steps=steps) == pytest.approx(single, abs=steps + 1, rel=1e-9)


@given(_COSTS, st.integers(0, 10**9), st.integers(0, 50), st.integers(0, 5000))
def test_prompt_tokens_within_a_target_keep_it(cost: StepCost, target: int, rows: int, context: int) -> None:
    """As many as fit: the step keeps the target, and a token more would not; none when the decodes alone exceed it."""
    tokens = cost.prompt_tokens_within(target, rows=rows, context=context)

    assert tokens >= 0
    alone = cost.time(StepFeatures(0, rows, context))
    if alone >= target:
        assert tokens == 0
    elif cost.per_prompt_token > 1e-3:
        assert cost.time(StepFeatures(tokens, rows, context)) <= target + 1
        assert cost.time(StepFeatures(tokens + 1, rows, context)) >= target - 1


def test_a_prompt_token_that_costs_nothing_does_not_limit() -> None:
    """Before any prompt was seen its cost is unknown, and the target caps nothing."""
    cost = StepCost(1000, 0.0, 10, 1)
    assert cost.prompt_tokens_within(5000, rows=1, context=10) > 10**6
    assert cost.prompt_tokens_within(1000, rows=1, context=10) == 0


def test_the_line_is_refitted_every_few_steps() -> None:
    """Solving costs more than observing: between refits the same snapshot is given."""
    predictor = _fed(StepCost(1000, 10, 10, 1), 8)
    snapshots = []
    for i in range(32):
        snapshots.append(predictor.cost())
        predictor.observe(MIXED[i % len(MIXED)], 10_000 + 1000 * i)
    changes = sum(earlier is not later for earlier, later in pairwise(snapshots))
    assert changes == 3
