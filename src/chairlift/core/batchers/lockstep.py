"""The rows of a closed batch that decodes.

From step to step only positions and newest tokens change, until a member ends, fails or is cancelled; then the rows are
made anew. So a step costs what changed, not what a row's columns cost to make.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from operator import add

from chairlift.core.batchers.decodes import grow
from chairlift.core.batchers.members import Member
from chairlift.core.batchers.rows import PAD
from chairlift.core.plan import BatchForecast, BlockTable, RowKind, StepPlan, TokenCounts
from chairlift.core.request import Nanoseconds, TokenId
from chairlift.core.sequence import Phase, Sequence
from chairlift.core.state import SchedulerState


class Lockstep:
    """One row for each member, in their order: live ones decode, ended ones are dead, and who holds no blocks any more
    is dead on the scratch block.

    Attributes:
        live: sequences that get a token in every step, in row order.
        live_rows: their rows.
        steps_left: steps until the first of them reaches its length; 0 when nobody lives.
    """

    def __init__(self, members: SequenceOf[Member], scratch: BlockTable) -> None:
        sequences = [member.sequence for member in members]
        # A dead row's last token was never computed while it mattered: nobody else reads that position, so that a step
        # which fails half-way cannot spoil what the prefix cache knows.
        alive = [bool(sequence.table) and sequence.phase is not Phase.ENDED for sequence in sequences]
        self.live_rows = [row for row, lives in enumerate(alive) if lives]
        self.live = [sequences[row] for row in self.live_rows]
        self.steps_left = min((s.last_position - s.computed for s in self.live), default=0)
        self._stop_ids = {s.request.stop_ids for s in self.live if s.request.stop_ids}
        self._ids = tuple(sequence.request_id for sequence in sequences)
        self._kinds = tuple(RowKind.DECODE if lives else RowKind.DEAD for lives in alive)
        self._samples = tuple(alive)
        self._tables = tuple(sequence.table or scratch for sequence in sequences)
        self._starts = [sequence.computed if sequence.table else 0 for sequence in sequences]
        self._tokens = [sequence.output[-1] if sequence.table else PAD for sequence in sequences]
        self._ones, self._zeros = (1,) * len(sequences), (0,) * len(sequences)
        self._counts = TokenCounts(decode=len(self.live), dead=len(sequences) - len(self.live))

    @property
    def stoppable(self) -> bool:
        """Whether a token may end somebody before its length."""
        return bool(self._stop_ids)

    def plan(self, state: SchedulerState, now: Nanoseconds, forecast: BatchForecast | None) -> StepPlan:
        """The next step."""
        return StepPlan(
            step=state.step,
            now=now,
            policy=state.config.policy,
            request_ids=self._ids,
            kinds=self._kinds,
            starts=tuple(self._starts),
            counts=self._ones,
            paddings=self._zeros,
            samples=self._samples,
            tokens=tuple(self._tokens),
            tables=self._tables,
            single_token_rows=len(self._ids),
            token_counts=self._counts,
            decisions=state.take_decisions(),
            forecast=forecast,
        )

    def advance(self, tokens: SequenceOf[TokenId], times: int) -> list[tuple[int, Sequence]]:
        """Every live member got its token, so many steps long. Returns rows and sequences that the last of them may
        have ended.
        """
        if times == 1:
            for sequence, token in zip(self.live, tokens, strict=True):
                sequence.output.append(token)
                sequence.computed += 1
            self._starts = list(map(add, self._starts, self._samples))
        else:
            grow(self.live, tokens)
            for sequence in self.live:
                sequence.computed += times
            self._starts = [start + times * lives for start, lives in zip(self._starts, self._samples, strict=True)]
        newest = iter(tokens[-len(self.live) :])
        self._tokens = [next(newest) if lives else old for lives, old in zip(self._samples, self._tokens, strict=True)]
        self.steps_left -= times
        members = zip(self.live_rows, self.live, strict=True)
        if not all(stops.isdisjoint(tokens) for stops in self._stop_ids):
            return list(members)
        return [(row, s) for row, s in members if s.computed >= s.last_position] if self.steps_left <= 0 else []
