"""What can execute a StepPlan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from chairlift.core.config import KVCapacity
from chairlift.core.plan import StepOutcome, StepPlan
from chairlift.core.request import TokenId
from chairlift.core.work import ModelShape


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a sampler made of one step's logits."""

    tokens: Sequence[TokenId]
    """One id per row of logits; any id for a row that failed."""
    failures: Mapping[int, str] = field(default_factory=dict)
    """Row of the logits -> why no token could be chosen (no finite logit, say). A runner passes it on in
    StepOutcome.failures, under the row's index in the plan."""


class Sampler(Protocol):
    """Turns logits into tokens. The engine provides it; a runner calls it inside execute(), once a step.

    A pure function of its arguments and of the tokens committed so far: a step that failed after it can be executed
    again.
    """

    def __call__(self, request_ids: Sequence[str], logits: NDArray[np.float32]) -> Sampled:
        """One token per row, or why not. Never raises on account of a row's values.

        Args:
            request_ids: whose logits each row is; length S. No two are equal.
            logits: [S, vocabulary], float32; a view that is valid, and only read, during the call.
        """
        ...


class ModelRunner(ABC):
    """One model on one device with one KV pool. Single-threaded: one call at a time.

    Side effects of execute(plan), in this order:
      1. for each row, positions starts .. starts + counts - 1 are written to the KV blocks that its table names.
         No other position of any block changes, except in the scratch block;
      2. attention of a row reads positions 0 .. its own, through its table. Rows may share blocks that they only read;
      3. rows with samples[i] yield one token from the logits at position starts + counts - paddings - 1. A DEAD row's
      logits
         are computed and dropped, as in any batch that runs on: its cost is real.

    A row that fails alone (a NaN in its logits, say) is reported in StepOutcome.failures; the rest of the step counts.
    When the step as a whole did not happen, execute() raises StepFailed: every position written by it may be garbage,
    but no other one is, so that the same plan can be executed again.
    """

    @abstractmethod
    def capacity(self) -> KVCapacity:
        """Block size and usable blocks. Constant over the runner's life."""

    @abstractmethod
    def shape(self) -> ModelShape | None:
        """Sizes of the model, for counting work; None when there is no real model behind it."""

    @abstractmethod
    def execute(self, plan: StepPlan) -> StepOutcome:
        """Run one step.

        Returns:
            tokens in the order of plan.sampled_rows, failures by row, and the device's time.

        Raises:
            StepFailed: nothing of the step counts.
        """

    def forget(self, request_id: str) -> None:  # noqa: B027 - most runners keep nothing per request
        """The request has ended: drop whatever is kept for it."""

    def close(self) -> None:  # noqa: B027 - most runners hold nothing
        """Free the device. The runner is not used again."""
