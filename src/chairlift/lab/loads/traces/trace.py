"""A trace in columns: some 100 bytes a request, whatever the format it came in."""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from chairlift.core.request import Nanoseconds

NONE = -1
"""Stands for "no such thing" in columns of numbers."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request as a reader found it."""

    time: Nanoseconds
    """On the trace's own clock."""
    prompt_tokens: int
    output_tokens: int
    key: int | str | None = None
    """What a later turn calls this request by."""
    parent: int | str | None = None
    """The key of the turn before."""
    session: int | str | None = None
    """The session's name, for formats that name sessions instead of parents."""
    blocks: tuple[int, ...] = ()
    """Names of the prompt's blocks: prompts that begin with the same names begin with the same tokens."""
    priority: int | None = None
    deadline: Nanoseconds | None = None
    kind: str = ""
    """The request class of the load that it belongs to."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Ragged lists of block names, one list a request."""

    tokens: int
    """Tokens in a block; a prompt's last block may be shorter."""
    names: array[int]
    """All lists, one after the other."""
    ends: array[int]
    """Where each request's list ends."""

    def of(self, row: int) -> array[int]:
        return self.names[self.ends[row - 1] if row else 0 : self.ends[row]]


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of time; all columns have one entry a request."""

    name: str
    """The file's name."""
    format: str
    """Which reader read it."""
    sha256: str
    """Of the file's bytes."""
    times: array[int]
    """Nanoseconds from the first request."""
    prompt_tokens: array[int]
    output_tokens: array[int]
    parents: array[int]
    """Row of the turn before, or NONE."""
    sessions: array[int]
    """Number of the session, or NONE; a request without earlier or later turns may have one of its own."""
    turns: array[int]
    """0 for the first of a session."""
    blocks: Blocks | None
    """What prompts share, where the trace knows."""
    priorities: Mapping[int, int]
    """By row, where the trace says."""
    deadlines: Mapping[int, Nanoseconds]
    """By row, where the trace says."""
    kinds: Mapping[int, str]
    """By row, where the trace says."""
    left_out: Mapping[str, int]
    """How many rows were skipped, by reason."""

    def __len__(self) -> int:
        return len(self.times)


@dataclass(slots=True)
class TraceBuilder:
    """Takes rows in any order."""

    rows: list[TraceRow] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, row: TraceRow) -> None:
        if row.output_tokens < 1:
            self.left_out["failed: 0 output tokens"] += 1
        elif row.prompt_tokens < 1:
            self.left_out["0 prompt tokens"] += 1
        else:
            self.rows.append(row)

    def build(self, *, name: str, trace_format: str, sha256: str, block_tokens: int) -> Trace:
        """The columns. Rows of equal time keep their order."""
        if any(before.time > after.time for before, after in itertools.pairwise(self.rows)):
            self.rows.sort(key=lambda row: row.time)
        first = self.rows[0].time
        parents, sessions, turns = self._families()
        numbered = list(enumerate(self.rows))
        return Trace(
            name=name,
            format=trace_format,
            sha256=sha256,
            times=array("q", [row.time - first for row in self.rows]),
            prompt_tokens=array("q", [row.prompt_tokens for row in self.rows]),
            output_tokens=array("q", [row.output_tokens for row in self.rows]),
            parents=parents,
            sessions=sessions,
            turns=turns,
            blocks=self._blocks(block_tokens),
            priorities={number: row.priority for number, row in numbered if row.priority is not None},
            deadlines={number: row.deadline for number, row in numbered if row.deadline is not None},
            kinds={number: row.kind for number, row in numbered if row.kind},
            left_out=dict(self.left_out),
        )

    def _families(self) -> tuple[array[int], array[int], array[int]]:
        """Parents, sessions and turns. A turn whose parent was not recorded before it begins a session."""
        parents, sessions, turns = (array("q", [NONE]) * len(self.rows) for _ in range(3))
        by_key: dict[int | str, int] = {}
        last_of: dict[int | str, int] = {}
        count = 0
        for number, row in enumerate(self.rows):
            parent = by_key.get(row.parent) if row.parent is not None else None
            if row.session is not None:
                parent = last_of.get(row.session)
                last_of[row.session] = number
            if row.key is not None:
                by_key[row.key] = number
            turns[number] = 0
            if parent is not None:
                parents[number], sessions[number], turns[number] = parent, sessions[parent], turns[parent] + 1
            elif row.session is not None or row.key is not None:
                sessions[number] = count
                count += 1
        return parents, sessions, turns

    def _blocks(self, tokens: int) -> Blocks | None:
        if not tokens or not any(row.blocks for row in self.rows):
            return None
        names, ends = array("q"), array("q")
        for row in self.rows:
            names.extend(row.blocks)
            ends.append(len(names))
        return Blocks(tokens, names, ends)
