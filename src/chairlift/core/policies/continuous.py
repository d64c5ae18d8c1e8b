"""Continuous batching: who runs is decided anew at every step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from chairlift.core.config import SchedulerConfig
from chairlift.core.reasons import Reason
from chairlift.core.sequence import Sequence


class StepView(Protocol):
    """The step so far, live: after a grant was taken, the figures include it."""

    @property
    def decoding(self) -> int:
        """Sequences that get their one token in this step."""

    @property
    def running_count(self) -> int:
        """Admitted sequences, decoding or in their prompts."""

    @property
    def prefilling(self) -> tuple[Sequence, ...]:
        """Admitted sequences whose prompts are not complete, in the order of admission."""

    @property
    def steps_since_prefill(self) -> int:
        """Steps since one carried prompt tokens, this one included."""

    @property
    def preempted_in_this_step(self) -> bool: ...

    def head(self) -> Sequence | None:
        """Who is next in the queue."""

    def blocks_needed(self, sequence: Sequence) -> int:
        """Of the free blocks, how many admission of this one takes: its reservation, less what it shares with others in
        use.
        """

    def tokens_to_compute(self, sequence: Sequence) -> int:
        """Its prompt less what the prefix cache holds of it."""

    @property
    def free_blocks(self) -> int: ...

    @property
    def watermark_blocks(self) -> int: ...

    def prompt_tokens_within(self, target: int) -> int | None:
        """How many prompt tokens fit in a step of `target` nanoseconds beside its decodes, as predicted; None: not
        known yet.
        """


@dataclass(frozen=True, slots=True)
class Grant:
    """This sequence computes so many prompt tokens in this step; one from the queue is admitted by it."""

    sequence: Sequence
    tokens: int


@dataclass(frozen=True, slots=True)
class Stop:
    """No more prompt tokens in this step, and why."""

    reason: Reason
    needed: int = 0
    available: int = 0


class Continuous:
    """A chairlift: it never stops; at every chair someone gets off and someone gets on.

    Every decoding sequence has its token already when this is asked, so that a long prompt never starves a running
    answer. What is left of the step's budget goes to prompts: first those begun, then the queue in its order, each
    admitted only when its whole prompt fits in the free blocks. At the first that does not fit the queue stops.
    """

    def __init__(self, settings: SchedulerConfig) -> None:
        self.settings = settings

    def choose(self, view: StepView) -> Iterator[Grant | Stop]:
        """Yields grants, each to be carried out before the next is asked for, and a Stop when somebody has to wait."""
        budget, spent_reason = self._budget(view)
        for sequence in view.prefilling:
            if budget < 1:
                yield Stop(spent_reason)
                return
            wanted = view.tokens_to_compute(sequence)
            if wanted > budget and not self.settings.enable_chunked_prefill:
                yield Stop(spent_reason, needed=wanted, available=budget)
                return
            tokens = min(budget, wanted)
            budget -= tokens
            yield Grant(sequence, tokens)
        while (head := view.head()) is not None:
            if stop := self._obstacle(view, head, budget, spent_reason):
                yield stop
                return
            tokens = min(budget, view.tokens_to_compute(head))
            budget -= tokens
            yield Grant(head, tokens)

    def _budget(self, view: StepView) -> tuple[int, Reason]:
        """Prompt tokens this step may carry, and why no more."""
        settings = self.settings
        budget = settings.max_num_batched_tokens - view.decoding
        many = view.decoding and view.decoding >= settings.prefill_interval_load * settings.max_num_seqs
        if many and view.steps_since_prefill < settings.prefill_interval:
            return 0, Reason.WAITING_FOR_INTERVAL
        if settings.target_itl is not None:
            within = view.prompt_tokens_within(settings.target_itl)
            # With nobody decoding there is no time between tokens to protect, and the step must not be empty.
            if within is not None and within < budget and view.decoding:
                return within, Reason.WAITING_FOR_LATENCY
        return budget, Reason.WAITING_FOR_BUDGET

    def _obstacle(self, view: StepView, sequence: Sequence, budget: int, spent_reason: Reason) -> Stop | None:
        """What keeps the head of the queue out of this step."""
        settings = self.settings
        if view.running_count >= settings.max_num_seqs:
            return Stop(Reason.WAITING_FOR_SLOT, needed=1, available=0)
        if budget < 1:
            return Stop(spent_reason)
        if not settings.enable_chunked_prefill and (tokens := view.tokens_to_compute(sequence)) > budget:
            return Stop(spent_reason, needed=tokens, available=budget)
        if view.preempted_in_this_step:
            return Stop(Reason.WAITING_FOR_BLOCKS)
        needed = view.blocks_needed(sequence)
        available = view.free_blocks - (view.watermark_blocks if view.running_count else 0)
        if needed > available:
            return Stop(Reason.WAITING_FOR_BLOCKS, needed=needed, available=max(0, available))
        return None
