"""A closed batch's members, and what leaves of them."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from chairlift.core.plan import Finished, StepEvents
from chairlift.core.request import TokenId
from chairlift.core.runs import Cycle, Stretches, TokenRuns
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
        self._steps: tuple[SequenceOf[str], SequenceOf[TokenId]] | None = None
        self._answers: list[tuple[str, SequenceOf[TokenId]]] = []
        self._finished: list[Finished] = []

    def steps(self, sequences: SequenceOf[Sequence], tokens: SequenceOf[TokenId], times: int) -> None:
        """The tokens that so many steps brought, one for each of these sequences and step: once, before all else."""
        names = [sequence.request_id for sequence in sequences]
        self._steps = (names if times == 1 else Cycle(names, times), tokens)
        for sequence in sequences:
            sequence.released += times

    def tokens_of(self, sequence: Sequence) -> None:
        """Everything generated that has not left yet."""
        if pending := sequence.unreleased():
            self._answers.append((sequence.request_id, pending))
            sequence.released += len(pending)

    def leave(self, sequence: Sequence, *, tokens: bool = True) -> None:
        """The result of an ended sequence, unless it has left before."""
        if self._state.sequences.get(sequence.request_id) is sequence:
            if tokens:
                self.tokens_of(sequence)
            self._finished.append(self._state.leave(sequence))

    def done(self) -> StepEvents:
        finished = tuple(self._finished)
        if self._steps is None:
            return StepEvents(*columns(self._answers), finished)
        if self._answers:
            names, tokens = columns(self._answers)
            return StepEvents([*self._steps[0], *names], [*self._steps[1], *tokens], finished)
        return StepEvents(*self._steps, finished)


def columns(answers: SequenceOf[tuple[str, SequenceOf[TokenId]]]) -> tuple[SequenceOf[str], SequenceOf[TokenId]]:
    """Whose token, and the token, for whole answers one after the other."""
    if any(isinstance(tokens, TokenRuns) for _, tokens in answers):
        joined = TokenRuns()
        for _, tokens in answers:
            joined.extend(tokens)
        return Stretches((name, len(tokens)) for name, tokens in answers), joined
    names = [name for name, tokens in answers for _ in tokens]
    return names, [token for _, tokens in answers for token in tokens]
