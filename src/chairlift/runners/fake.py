"""A runner without a model: deterministic tokens, scripted durations, injected failures. Most tests run on it.

It keeps a real KV memory of its own: each step writes the row's token ids to the blocks that its table names, and a new
token is a digest of everything that the row can read back through its table. So a wrong table, a block shared too early
or freed too soon changes the tokens, and "same tokens whatever the policy" is a test of the allocator and not of a
formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from zlib import crc32

import numpy as np

from chairlift.core.config import KVCapacity
from chairlift.core.errors import StepFailed
from chairlift.core.plan import RowKind, StepOutcome, StepPlan
from chairlift.core.request import Nanoseconds, TokenId
from chairlift.core.work import ModelShape
from chairlift.runners.base import ModelRunner

Duration = Callable[[StepPlan], Nanoseconds]


def linear_time(
    fixed: Nanoseconds = 20_000_000, per_token: Nanoseconds = 1_000_000, per_context: Nanoseconds = 1_000
) -> Duration:
    """A step time like a real device's: something fixed, something a token, something a position read."""

    def duration(plan: StepPlan) -> Nanoseconds:
        read = sum(start + count for start, count in zip(plan.starts, plan.counts, strict=True))
        return fixed + per_token * sum(plan.counts) + per_context * read

    return duration


def next_token(context: bytes, vocabulary: int) -> TokenId:
    """The token that follows a context, as this runner sees it: int64 token ids, little-endian."""
    return crc32(context) % vocabulary


class FakeRunner(ModelRunner):
    """Executes plans on a KV memory of token ids.

    Faults are injected by the caller: put a request id into `failing` and its rows fail; put a step number into
    `broken_steps` and that step raises StepFailed, once, after having written garbage where the step may write.
    """

    def __init__(
        self, *, num_blocks: int = 64, block_size: int = 16, vocabulary: int = 50_000, duration: Duration | None = None
    ) -> None:
        self._capacity = KVCapacity(block_size, num_blocks, scratch_block=num_blocks, block_bytes=1024 * block_size)
        self._vocabulary = vocabulary
        self._duration = duration or linear_time()
        self._memory = np.full((num_blocks + 1) * block_size, -1, dtype=np.int64)
        self.failing: dict[str, str] = {}
        """Request id -> message of the failure that its next sampled row reports."""
        self.broken_steps: set[int] = set()
        self.executed: list[StepPlan] = []
        """Every plan executed, the tables as they were not kept: read them inside execute()."""
        self.forgotten: list[str] = []
        self.closed = False

    def capacity(self) -> KVCapacity:
        return self._capacity

    def shape(self) -> ModelShape | None:
        return None

    def execute(self, plan: StepPlan) -> StepOutcome:
        rows = list(_rows(plan))
        slots = [self._slots(plan, row) for row in range(len(plan))]
        if plan.step in self.broken_steps:
            self.broken_steps.discard(plan.step)
            for row, (start, count, _) in enumerate(rows):
                self._memory[slots[row][start : start + count]] = -2
            raise StepFailed(f"step {plan.step} was scripted to fail")
        for row, (start, count, tokens) in enumerate(rows):
            self._memory[slots[row][start : start + count]] = tokens
        self.executed.append(plan)
        sampled: list[TokenId] = []
        failures: dict[int, str] = {}
        for row in plan.sampled_rows:
            start, count, _ = rows[row]
            context = self._memory[slots[row][: start + count - plan.paddings[row]]]
            sampled.append(next_token(context.tobytes(), self._vocabulary))
            if plan.request_ids[row] in self.failing:
                failures[row] = self.failing.pop(plan.request_ids[row])
        return StepOutcome(sampled, self._duration(plan), failures)

    def forget(self, request_id: str) -> None:
        self.forgotten.append(request_id)

    def close(self) -> None:
        self.closed = True

    def _slots(self, plan: StepPlan, row: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Memory index of each position that the row's table holds."""
        size = self._capacity.block_size
        blocks = np.frombuffer(plan.tables[row], dtype=np.int32).astype(np.int64)
        slots = (blocks[:, None] * size + np.arange(size)).reshape(-1)
        needed = plan.starts[row] + plan.counts[row]
        if len(slots) < needed:
            raise StepFailed(
                f"row {row} ({plan.request_ids[row]}) writes {needed} positions; its table holds {len(slots)}."
            )
        if plan.kinds[row] is not RowKind.DEAD and self._capacity.scratch_block in blocks:
            raise StepFailed(f"row {row} ({plan.request_ids[row]}) is alive but on the scratch block.")
        return slots


def _rows(plan: StepPlan) -> Iterator[tuple[int, int, Sequence[TokenId]]]:
    """Start, count and input ids of each row."""
    first = 0
    for start, count in zip(plan.starts, plan.counts, strict=True):
        yield start, count, plan.tokens[first : first + count]
        first += count
