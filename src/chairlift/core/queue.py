"""The requests that wait, in the order in which they will be let in.

A preempted sequence comes back to its own place, because its key has not changed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from chairlift.core.config import QueueOrder
from chairlift.core.sequence import Sequence

_Key = tuple[int, ...]
"""Ends in the sequence's number, so that no two are equal and sequences themselves are never compared."""


def _by_arrival(sequence: Sequence) -> _Key:
    return (sequence.arrival, sequence.number)


def _by_priority(sequence: Sequence) -> _Key:
    return sequence.order


def _by_prompt(sequence: Sequence) -> _Key:
    return (sequence.prompt_length, sequence.arrival, sequence.number)


_KEYS: dict[QueueOrder, Callable[[Sequence], _Key]] = {
    "fcfs": _by_arrival,
    "priority": _by_priority,
    "shortest_prompt": _by_prompt,
}


class WaitingQueue:
    """Sorted by the queue order. Insertion and removal move pointers in a list, which beats a tree at any length met
    here.
    """

    def __init__(self, order: QueueOrder) -> None:
        self.order: QueueOrder = order
        self.tokens = 0
        """Tokens to compute for all that wait."""
        self._key = _KEYS[order]
        self._entries: list[tuple[_Key, Sequence]] = []
        self._arrivals: list[tuple[_Key, Sequence]] = self._entries if order == "fcfs" else []
        """The same by arrival: another list only where the order is another."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for _, sequence in self._entries)

    def push(self, sequence: Sequence) -> None:
        insort(self._entries, (self._key(sequence), sequence))
        if self._arrivals is not self._entries:
            insort(self._arrivals, (_by_arrival(sequence), sequence))
        self.tokens += sequence.length

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence that is in the queue."""
        _take(self._entries, self._key(sequence))
        if self._arrivals is not self._entries:
            _take(self._arrivals, _by_arrival(sequence))
        self.tokens -= sequence.length

    def head(self) -> Sequence | None:
        """The next in order."""
        return self._entries[0][1] if self._entries else None

    def oldest(self) -> Sequence | None:
        """The one that arrived first, whatever the order."""
        return self._arrivals[0][1] if self._arrivals else None


def _take(entries: list[tuple[_Key, Sequence]], key: _Key) -> None:
    # A tuple that is a prefix of another sorts before it: (key,) finds (key, sequence) without comparing sequences.
    del entries[bisect_left(entries, (key,))]
