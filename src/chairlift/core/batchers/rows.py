"""The rows of a step under construction, column by column."""

from __future__ import annotations

from typing import Protocol

from chairlift.core.plan import BatchForecast, BlockTable, RowKind, StepEvents, StepOutcome, StepPlan, TokenCounts, Wait
from chairlift.core.request import FinishReason, Nanoseconds, TokenId
from chairlift.core.runs import TokenRuns
from chairlift.core.sequence import Phase, Sequence
from chairlift.core.state import SchedulerState

PAD: TokenId = 0


class Rows:
    """Columns of the rows with prompt tokens, and the finished columns of the one-token rows before them."""

    def __init__(self) -> None:
        self.sequences: list[Sequence] = []
        self.ids: list[str] = []
        self.kinds: list[RowKind] = []
        self.starts: list[int] = []
        self.counts: list[int] = []
        self.paddings: list[int] = []
        self.samples: list[bool] = []
        self.tokens: list[TokenId] | TokenRuns = []
        self.tables: list[BlockTable] = []
        self.shares: list[TokenCounts] = []
        self.singles = 0
        self.prefill = self.decode = self.recompute = self.padding = self.dead = 0
        self.forecast: BatchForecast | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def add_single(self, sequence: Sequence, kind: RowKind, position: int, token: TokenId, table: BlockTable) -> None:
        """A decode or dead row. All of them come before the first prompt row."""
        self._add(sequence, kind, position, 1, 0, samples=kind is RowKind.DECODE, table=table)
        self.tokens.append(token)
        self.singles += 1
        if kind is RowKind.DECODE:
            self.decode += 1
        else:
            self.dead += 1

    def add_prompt(self, sequence: Sequence, start: int, count: int, known: int) -> None:
        """Positions start .. start + count - 1 of a prefill of `known` tokens; those past its end are padding."""
        end = start + count
        real = max(0, min(end, known) - start)
        padding = count - real
        again = max(0, min(start + real, sequence.high_water) - start)
        fresh_prompt = max(0, min(start + real, sequence.prompt_length) - start - again)
        kind = RowKind.RECOMPUTE if again else RowKind.PREFILL
        self._add(sequence, kind, start, count, padding, samples=start < known <= end, table=sequence.table)
        tokens = sequence.tokens(start, start + real)
        if isinstance(tokens, TokenRuns) and not isinstance(self.tokens, TokenRuns):
            self.tokens = TokenRuns(self.tokens)
        self.tokens.extend(tokens)
        if padding:
            self.tokens.extend([PAD] * padding)
        self.recompute += again
        self.prefill += fresh_prompt
        self.decode += real - again - fresh_prompt
        self.padding += padding
        self.shares.append(TokenCounts(fresh_prompt, real - again - fresh_prompt, again, padding))

    def _add(
        self,
        sequence: Sequence,
        kind: RowKind,
        start: int,
        count: int,
        padding: int,
        *,
        samples: bool,
        table: BlockTable,
    ) -> None:
        self.sequences.append(sequence)
        self.ids.append(sequence.request.request_id)
        self.kinds.append(kind)
        self.starts.append(start)
        self.counts.append(count)
        self.paddings.append(padding)
        self.samples.append(samples)
        self.tables.append(table)

    def plan(self, state: SchedulerState, now: Nanoseconds) -> StepPlan:
        """Freeze the columns."""
        return StepPlan(
            step=state.step,
            now=now,
            policy=state.config.policy,
            request_ids=tuple(self.ids),
            kinds=tuple(self.kinds),
            starts=tuple(self.starts),
            counts=tuple(self.counts),
            paddings=tuple(self.paddings),
            samples=tuple(self.samples),
            tokens=self.tokens if isinstance(self.tokens, TokenRuns) else tuple(self.tokens),
            tables=tuple(self.tables),
            single_token_rows=self.singles,
            token_counts=TokenCounts(self.prefill, self.decode, self.recompute, self.padding, self.dead),
            shares=tuple(self.shares),
            decisions=state.take_decisions(),
            forecast=self.forecast,
        )


class Batcher(Protocol):
    """One way of running sequences. At most one plan of it is in flight."""

    def plan(self, now: Nanoseconds) -> StepPlan | Wait: ...

    def apply(self, plan: StepPlan, outcome: StepOutcome, times: int) -> StepEvents:
        """Move the sequences on by a step that happened (`times` > 1: by that many, as horizon() allowed)."""
        ...

    def cancel(self, sequence: Sequence) -> StepEvents:
        """End an admitted sequence, between steps."""
        ...

    def horizon(self) -> int:
        """How often the plan in flight may be repeated before anything but lengths changes."""
        ...

    @property
    def drained(self) -> bool:
        """Whether nobody who was let in is left, so that another batcher can begin afresh."""
        ...

    def surrender(self) -> tuple[list[Sequence], StepEvents]:
        """Give up what runs, with its blocks, to another batcher, and results that were held back to the world."""
        ...

    def running(self) -> list[Sequence]:
        """Admitted sequences that have not ended."""
        ...

    def holders(self) -> list[Sequence]:
        """Sequences that hold blocks, ended members of a closed batch included."""
        ...


def end_of(sequence: Sequence) -> FinishReason | None:
    """Whether the newest token ends the sequence, by stop id or length."""
    request = sequence.request
    length = sequence.length
    if request.stop_ids and length >= sequence.stop_from and sequence.output[-1] in request.stop_ids:
        return FinishReason.STOP
    return FinishReason.LENGTH if length > sequence.last_position else None


def advance(sequence: Sequence, token: TokenId | None, computed: int) -> None:
    """The sequence has `computed` leading tokens in the pool now, and perhaps a new token."""
    sequence.computed = computed
    if token is not None:
        sequence.output.append(token)
        sequence.phase = Phase.DECODE
