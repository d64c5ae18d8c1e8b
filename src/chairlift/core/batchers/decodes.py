"""The decoding sequences of a continuous batch, as columns, with a calendar of what is due.

Every decoding sequence gets one token a step, so the step at which it will need a block, or reach its length, is known
when it joins. The calendar holds both by step; a step looks only at who is due. That, and columns that change only when
somebody joins or leaves, is what makes a quiet step of hundreds of sequences cost a few passes over integers.

Entries are not removed when a sequence leaves early: whoever is found on its day is checked before anything is done.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

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
        self._growth.setdefault(self._tick + sequence.room - sequence.computed, []).append(sequence)
        self._lengths.setdefault(self._tick + sequence.last_position - sequence.computed, []).append(sequence)

    def leave(self, sequence: Sequence) -> None:
        row = self.sequences.index(sequence)
        for column in (self.sequences, self.ids, self.tables, self.newest):
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
        # One that will end before the new block is full stays on the calendar too; it is not found decoding then.
        self._growth.setdefault((self._tick if tick is None else tick) + size, []).extend(sequences)

    def growth_within(self, times: int) -> list[Sequence]:
        """Who will need a block in the later steps of a jump: in the order of single steps, repeated if need be."""
        everybody: list[Sequence] = []
        last = self._tick + times - 1
        # Whoever grows is due again a block later, so look for the next day again and again, not at every day.
        while (tick := min(self._growth, default=last + 1)) <= last:
            passed = tick - self._tick
            found = self._growth.pop(tick)
            due = [s for s in dict.fromkeys(found) if s.phase is Phase.DECODE and s.computed + passed >= s.room]
            if due:
                self.grown(due, tick)
                everybody += due
        return everybody

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
            return self._next_tick(1)
        grow(self.sequences, tokens)
        for sequence in self.sequences:
            sequence.computed += times
        self.newest = list(tokens[-rows:])
        return self._next_tick(times)

    def advanced_one_by_one(self) -> None:
        """A step in which rows failed or were stopped: the caller has moved each member on."""
        self.newest = [sequence.output[-1] for sequence in self.sequences]
        self._next_tick(1)

    def stopped_by(self, tokens: SequenceOf[TokenId]) -> bool:
        """Whether any token is a stop id of anybody: rarely, so that nobody is looked at one by one."""
        return not all(stops.isdisjoint(tokens) for stops in self.stop_ids)

    def steps_to_nearest_length(self) -> int:
        return min((s.last_position - s.computed for s in self.sequences), default=1)

    def _next_tick(self, times: int) -> list[Sequence]:
        if times > 1:
            passed = range(self._tick + 1, self._tick + times)
            for tick in passed if times < len(self._lengths) else [tick for tick in self._lengths if tick in passed]:
                self._lengths.pop(tick, None)  # of members that left before their length: a jump passes nobody else's
        self._tick += times
        found = self._lengths.pop(self._tick, None)
        if not found:
            return []
        return [s for s in dict.fromkeys(found) if s.phase is Phase.DECODE and s.computed >= s.last_position]


def grow(sequences: SequenceOf[Sequence], tokens: SequenceOf[TokenId]) -> None:
    """Each of these got its share of a jump's tokens, which come in groups, step after step."""
    rows = len(sequences)
    if isinstance(tokens, TokenRuns) and tokens.same:
        token, count = tokens[0], len(tokens) // rows
        for sequence in sequences:
            output = sequence.output
            if not isinstance(output, TokenRuns):
                sequence.output = output = TokenRuns(output)
            output.repeat(token, count)
        return
    for row, sequence in enumerate(sequences):
        sequence.output.extend(tokens[row::rows])
