"""A closed batch's members, and what leaves of them."""

from __future__ import annotations

from chairlift.core.plan import Finished, StepEvents
from chairlift.core.request import TokenId
from chairlift.core.sequence import Sequence
from chairlift.core.state import SchedulerState


class Member:
    """One row of a closed batch, from its start to its end."""

    __slots__ = ("known", "position", "sequence", "target")

    def __init__(self, sequence: Sequence, target: int) -> None:
        self.sequence = sequence
        self.known = sequence.length
        """Tokens that its prefill computes; fixed, while the first generated token may come before the padding's
        end.
        """
        self.position = sequence.computed
        """Next position of the prefill; runs on into the padding."""
        self.target = target
        """Where its prefill ends: at the batch's longest prompt, or at its own."""

    @property
    def on_scratch(self) -> bool:
        return not self.sequence.table

    @property
    def prefill_left(self) -> bool:
        """Whether it has positions to compute before the batch decodes, padding included."""
        return self.position < self.target and not self.on_scratch


class Release:
    """Collects what leaves in one commit."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._ids: list[str] = []
        self._tokens: list[TokenId] = []
        self._finished: list[Finished] = []

    def tokens_of(self, sequence: Sequence) -> None:
        """Everything generated that has not left yet."""
        pending = sequence.unreleased()
        self._ids += [sequence.request_id] * len(pending)
        self._tokens += pending
        sequence.released += len(pending)

    def leave(self, sequence: Sequence, *, tokens: bool = True) -> None:
        """The result of an ended sequence, unless it has left before."""
        if self._state.sequences.get(sequence.request_id) is sequence:
            if tokens:
                self.tokens_of(sequence)
            self._finished.append(self._state.leave(sequence))

    def done(self) -> StepEvents:
        return StepEvents(self._ids, self._tokens, tuple(self._finished))
