from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.core.plan import RowKind, StepPlan, Wait
from chairlift.devices.shape import StepShape
from tests.core.helpers import any_outcome, make_scheduler, request, submit

SETTINGS = st.sampled_from(
    [
        {"policy": "continuous", "max_num_batched_tokens": 24, "max_num_seqs": 5},
        {"policy": "continuous", "max_num_batched_tokens": 512, "watermark": 0.0},
        {"policy": "static", "batch_size": 3},
        {"policy": "dynamic", "max_batch_size": 4, "padding": "none"},
    ]
)


def counted_row_by_row(plan: StepPlan) -> StepShape:
    """The same sizes by looking at every row's positions one at a time."""
    tokens = context = growth = pairs = prompt_context = prompts = logits = longest = growing = 0
    for kind, start, count, samples in zip(plan.kinds, plan.starts, plan.counts, plan.samples, strict=True):
        positions = range(start, start + count)
        tokens += len(positions)
        longest = max(longest, start + count)
        if kind in (RowKind.DECODE, RowKind.DEAD):
            context += start + 1
            growth += kind is RowKind.DECODE
            growing = max(growing, start + 1) if kind is RowKind.DECODE else growing
            logits += 1
        else:
            prompts += 1
            pairs += sum(position + 1 for position in positions)
            prompt_context += start + count
            logits += samples
    return StepShape(tokens, len(plan), logits, context, growth, pairs, prompt_context, prompts, longest, growing)


@given(
    config=SETTINGS,
    sizes=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=6),
    blocks=st.integers(8, 40),
)
@settings(max_examples=30)
def test_a_plans_shape_is_what_its_rows_add_up_to(
    config: dict[str, Any], sizes: list[tuple[int, int]], blocks: int
) -> None:
    """Prefills, chunks, decodes, padding, dead rows and recomputation, under every policy."""
    scheduler = make_scheduler(num_blocks=blocks, max_model_len=100, **config)
    submit(scheduler, *(request(f"r{i}", prompt, most) for i, (prompt, most) in enumerate(sizes)))
    scheduler.end_input(0)
    now = 0
    while not isinstance(plan := scheduler.plan(now), Wait):
        assert StepShape.of(plan) == counted_row_by_row(plan)
        scheduler.commit(plan, any_outcome(plan), now := now + 1)


@given(config=SETTINGS, sizes=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=6))
@settings(max_examples=30)
def test_a_repeat_is_shaped_as_the_scheduler_would_plan_it(
    config: dict[str, Any], sizes: list[tuple[int, int]]
) -> None:
    """Within horizon(), after(k) is the shape of the k-th step that follows."""
    scheduler = make_scheduler(num_blocks=64, max_model_len=100, **config)
    submit(scheduler, *(request(f"r{i}", prompt, most) for i, (prompt, most) in enumerate(sizes)))
    scheduler.end_input(0)
    now, expected = 0, list[StepShape]()
    while not isinstance(plan := scheduler.plan(now), Wait):
        shape = StepShape.of(plan)
        if expected:
            assert shape == expected.pop(0)
        else:
            expected = [shape.after(k) for k in range(1, scheduler.horizon(plan))]
        scheduler.commit(plan, any_outcome(plan), now := now + 1)


def test_shapes_made_for_measuring_add_up() -> None:
    """Two decodes of 10 beside one prompt of 4 that continues at 6."""
    shape = StepShape.decode(2, 10).beside(StepShape.prefill(1, 4, start=6, samples=False))

    assert shape == StepShape(
        tokens=6,
        rows=3,
        logits=2,
        context=20,
        growth=2,
        pairs=7 + 8 + 9 + 10,
        prompt_context=10,
        prompts=1,
        longest=10,
        longest_decode=10,
    )
    assert "1 prompt rows with 4 tokens to 10, 2 decodes over 20 positions" in shape.describe()
