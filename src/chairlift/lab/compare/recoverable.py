"""What padding and dead rows really cost: the device time that the steps would not have taken without them.

Their share of the tokens overstates it, since eight rows cost little more than one. What a row costs can only be seen
where rows vary; under static batching every step has the same number of them. So one line is fitted to the steps of all
policies' runs together:

    time = fixed x steps + per_prompt_token x prompt tokens + per_row x one-token rows + per_byte x KV bytes read

by least squares on relative error, no coefficient negative; padding counts as prompt tokens, dead rows as rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from chairlift.devices.nonnegative import solve
from chairlift.records.schema import StepRecord

RECOVERABLE: Final = (
    "[s] device time that the steps would not have taken without padding and dead rows, by a line over steps, prompt "
    "tokens, rows and KV bytes that is fitted to the steps of all policies' runs together."
)


@dataclass(frozen=True, slots=True)
class StepLine:
    """The fitted line: nanoseconds."""

    fixed: float
    per_prompt_token: float
    per_row: float
    per_byte: float

    @classmethod
    def of(cls, steps: Iterable[StepRecord]) -> Self | None:
        """Fitted to steps; None where there are fewer than the line has coefficients."""
        known = [step for step in steps if step.device_time > 0]
        if len(known) < len(cls.__slots__):
            return None
        matrix = np.array([_features(step) for step in known], dtype=np.float64)
        times = np.array([step.device_time for step in known], dtype=np.float64)
        return cls(*(float(x) for x in solve(matrix / times[:, None], np.ones(len(known)))))

    def recoverable(self, steps: Sequence[StepRecord]) -> float:
        """Seconds: see RECOVERABLE."""
        return sum(self._wasted(step) for step in steps) / 1e9

    def _wasted(self, step: StepRecord) -> float:
        rows = step.decode + step.dead
        read = step.decode_kv_bytes * step.dead / rows if rows else 0.0
        return self.per_prompt_token * step.padding + self.per_row * step.dead + self.per_byte * read


def _features(step: StepRecord) -> tuple[int, int, int, int]:
    prompt = step.prefill + step.recompute + step.padding
    return (step.repeats, prompt, step.decode + step.dead, step.decode_kv_bytes)
