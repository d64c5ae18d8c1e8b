from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.records.schema import StepRecord
from chairlift.records.usage import USAGE_DEFINITIONS, Usage, usage

COUNTS: dict[str, Any] = {name: 0 for name in StepRecord.__annotations__ if name not in {"policy", "batch"}}
SECOND = 10**9


def step(planned: int, committed: int, device: int, **tokens: int) -> StepRecord:
    """Times in seconds."""
    times = {"planned": planned * SECOND, "committed": committed * SECOND, "device_time": device * SECOND}
    return StepRecord(policy="static", **{**COUNTS, **times, **tokens})


def test_busy_useful_and_saturation_are_three_things() -> None:
    """Ten seconds, of which six on the device; 40 of 80 tokens useful; 4 tokens/s of 16 that it could do."""
    steps = [step(0, 4, 3, prefill=30, padding=20), step(5, 10, 3, decode=10, dead=15, recompute=5)]

    assert usage(steps, maximum=16) == Usage(busy=0.6, useful=0.5, saturation=0.25)


def test_what_cannot_be_divided_is_none() -> None:
    """No steps, no tokens, no calibration."""
    assert usage([]) == Usage(None, None, None)
    assert usage([step(0, 0, 0)], maximum=1) == Usage(None, None, None)
    assert usage([step(0, 2, 1, decode=4)]).saturation is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)), min_size=1))
def test_waste_lowers_useful_and_nothing_else(drawn: list[tuple[int, int, int]]) -> None:
    """Padding and dead rows leave busy and saturation as they are; useful is a share."""
    clean = [step(i, i + 1, 1, decode=1 + good) for i, (good, _, _) in enumerate(drawn)]
    waste = [replace(one, padding=padding, dead=dead) for one, (_, padding, dead) in zip(clean, drawn, strict=True)]
    before, after = usage(clean, 7.0), usage(waste, 7.0)

    assert (after.busy, after.saturation) == (before.busy, before.saturation)
    assert before.useful == 1
    assert after.useful is not None
    assert 0 < after.useful <= 1
    assert (after.useful < 1) == any(padding or dead for _, padding, dead in drawn)
    assert before.busy == pytest.approx(1)


def test_each_word_has_its_definition() -> None:
    """And no other."""
    assert set(USAGE_DEFINITIONS) == set(Usage.__slots__)
