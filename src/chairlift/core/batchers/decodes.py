"""The decoding sequences of a continuous batch, as columns, with a calendar of what is due.

Every decoding sequence gets one token a step, so the step at which it will need a block, or reach its length, is known
when it joins. The calendar holds both by step; a step looks only at who is due. That, and columns that change only when
somebody joins or leaves, is what makes a quiet step of hundreds of sequences cost a few passes over integers.

Who leaves early is taken off the calendar, so that it keeps nobody's tokens. Whoever is found on its day is checked all
the same before anything is done: a sequence that failed is not where the calendar would look for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from typing import TypeGuard

from chairlift.core.plan import BlockTable
from chairlift.core.request import TokenId
from chairlift.core.runs import TokenRuns
from chairlift.core.sequence import Phase, Sequence


class Decodes:
    """In order of joining. `computed` and `output` of its members are moved on here and nowhere else."""

    def __init__(self, block_size: int) -> None:
        self.sequences: list[Sequence] = []
        self.ids: list[str] = []
        self.tables: list[BlockTable] = []
        self.newest: list[TokenId] = []
        """The columns: request id, block table, newest token (which the next step computes)."""
        self.stop_ids: dict[frozenset[TokenId], int] = {}
        """How many members have which stop ids, for members that have any."""
        self._block_size = block_size
        self._tick = 0
        self._growth: dict[int, list[Sequence]] = {}
        self._lengths: dict[int, list[Sequence]] = {}
        self._ends: list[int] = []
        """Column: the tick at which a member reaches its length."""

    def __len__(self) -> int:
        return len(self.sequences)

    def join(self, sequence: Sequence) -> None:
        """Its prompt is complete and its newest token is not computed yet."""
        self.sequences.append(sequence)
        self.ids.append(sequence.request.request_id)
        self.tables.append(sequence.table)
        self.newest.append(sequence.output[-1])
        if stops := sequence.request.stop_ids:
            self.stop_ids[stops] = self.stop_ids.get(stops, 0) + 1
        end = self._tick + sequence.last_position - sequence.computed
        self._ends.append(end)
        self._lengths.setdefault(end, []).append(sequence)
        self._growth.setdefault(self._tick + sequence.room - sequence.computed, []).append(sequence)

    def leave(self, sequence: Sequence) -> None:
        row = self.sequences.index(sequence)
        _take_off(self._lengths, self._ends[row], sequence)
        _take_off(self._growth, self._tick + sequence.room - sequence.computed, sequence)
        for column in (self.sequences, self.ids, self.tables, self.newest, self._ends):
            del column[row]
        if stops := sequence.request.stop_ids:
            self.stop_ids[stops] -= 1
            if not self.stop_ids[stops]:
                del self.stop_ids[stops]

    def due_for_growth(self) -> list[Sequence]:
        """Who needs a block before the coming step. Each is found once: grow or preempt it."""
        found = self._growth.pop(self._tick, None)
        if not found:
            return []
        return [s for s in dict.fromkeys(found) if s.phase is Phase.DECODE and s.computed >= s.room]

    def put_off(self, sequence: Sequence) -> None:
        """It needs a block before the coming step and got none: it is due again when the step is planned again."""
        self._growth.setdefault(self._tick, []).append(sequence)

    def grown(self, sequences: list[Sequence], tick: int | None = None) -> None:
        """Their tables have one block more each, as they had to by now (or by `tick`)."""
        size = self._block_size
        for sequence in sequences:
            sequence.room += size
        if sequences:
            self._growth.setdefault((self._tick if tick is None else tick) + size, []).extend(sequences)

    def growth_within(self, times: int) -> list[Sequence]:
        """Who will need a block in the later steps of a jump: in the order of single steps, repeated if need be."""
        everybody: list[Sequence] = []
        for tick in self._days(self._tick + 1, self._tick + times):
            passed = tick - self._tick
            found = self._growth.pop(tick)
            due = [s for s in dict.fromkeys(found) if s.phase is Phase.DECODE and s.computed + passed >= s.room]
            self.grown(due, tick)
            everybody += due
        return everybody

    def _days(self, first: int, stop: int) -> Iterator[int]:
        """The days in this range on which growth is due, the ones included that are entered meanwhile."""
        if stop - first <= 4 * self._block_size:
            yield from (day for day in range(first, stop) if day in self._growth)
        else:
            # Whoever grows is due again a block later: look for the next day again and again, not at every day.
            while (day := min(self._growth, default=stop)) < stop:
                yield day

    def blocks_needed(self, times: int) -> int:
        """How many blocks `times` steps take, beyond what the tables hold now."""
        size = self._block_size
        return sum(max(0, -((s.room - s.computed - times) // size)) for s in self.sequences)

    def steps_within(self, blocks: int, most: int) -> int:
        """How many steps, `most` at most and 1 at least, take no more than so many blocks."""
        # Nobody needs more than one for each block_size steps begun: nearly always enough to know.
        if len(self.sequences) * -(-most // self._block_size) <= blocks or self.blocks_needed(most) <= blocks:
            return most
        low, high = 1, most - 1  # it grows with the steps, so bisect
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.blocks_needed(middle) <= blocks else (low, middle - 1)
        return low

    def advance(self, tokens: SequenceOf[TokenId], times: int = 1) -> list[Sequence]:
        """Every member got its token (`times` > 1: so many, step after step). Returns who has reached its length."""
        rows = len(self.sequences)
        if times == 1:
            for sequence, token in zip(self.sequences, tokens, strict=False):  # tokens of prompt rows follow
                sequence.output.append(token)
                sequence.computed += 1
            self.newest = list(tokens[:rows])
        else:
            grow(self.sequences, tokens)
            for sequence in self.sequences:
                sequence.computed += times
            self.newest = [tokens[-1]] * rows if _same(tokens) else list(tokens[-rows:])
        return self._next_tick(times)

    def advanced_one_by_one(self) -> None:
        """A step in which rows failed or were stopped: the caller has moved each member on."""
        self.newest = [sequence.output[-1] for sequence in self.sequences]
        self._next_tick(1)

    def stopped_by(self, tokens: SequenceOf[TokenId]) -> bool:
        """Whether any token is a stop id of anybody: rarely, so that nobody is looked at one by one."""
        return not all(stops.isdisjoint(tokens) for stops in self.stop_ids)

    def steps_to_nearest_length(self) -> int:
        return min(self._ends) - self._tick if self._ends else 1

    def _next_tick(self, times: int) -> list[Sequence]:
        self._tick += times
        found = self._lengths.pop(self._tick, None)
        if not found:
            return []
        return [s for s in dict.fromkeys(found) if s.phase is Phase.DECODE and s.computed >= s.last_position]


def _take_off(calendar: dict[int, list[Sequence]], day: int, sequence: Sequence) -> None:
    due = calendar.get(day)
    if due is not None and sequence in due:
        due.remove(sequence)
        if not due:
            del calendar[day]


def _same(tokens: SequenceOf[TokenId]) -> TypeGuard[TokenRuns]:
    return isinstance(tokens, TokenRuns) and tokens.same


def grow(sequences: SequenceOf[Sequence], tokens: SequenceOf[TokenId]) -> None:
    """Each of these got its share of a jump's tokens, which come in groups, step after step."""
    rows = len(sequences)
    if _same(tokens):
        token, count = tokens[0], len(tokens) // rows
        for sequence in sequences:
            output = sequence.output
            if not isinstance(output, TokenRuns):
                sequence.output = output = TokenRuns(output)
            output.repeat(token, count)
        return
    for row, sequence in enumerate(sequences):
        sequence.output.extend(tokens[row::rows])
