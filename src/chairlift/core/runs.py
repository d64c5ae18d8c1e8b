"""Sequences that are described instead of stored: what keeps a simulation of a million tokens small.

A simulated prompt is a few stretches of ids that count up, a simulated answer one id over and over, and a jump over n
steps tells the same names n times. Each is a sequence like any other, and costs by its runs, not by its length.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain, repeat
from typing import NamedTuple, TypeVar, overload

from chairlift.core.request import TokenId

T = TypeVar("T")

ContentKey = bytes | int
"""What a full block holds, and everything before it: a digest of stored tokens, or a number for described ones, which
lie side by side in memory and in the pool's index as the blocks of a prompt do.
"""


class Run(NamedTuple):
    """`size` ids: first, first + step, first + 2 step, ...; step is 0 or 1."""

    first: TokenId
    step: int
    size: int


class TokenRuns(Sequence[TokenId]):
    """Token ids as runs that count up by one or stay the same. Grows at its end like a list.

    Two of equal ids are equal in their runs as long as no run ends where the next one would have gone on.
    """

    __slots__ = ("_firsts", "_length", "_next", "_starts", "_steps")

    def __init__(self, tokens: Iterable[TokenId] = ()) -> None:
        self._starts: list[int] = []
        """Position of each run's first id."""
        self._firsts: list[TokenId] = []
        self._steps: list[int] = []
        self._length = 0
        self._next: TokenId | None = None
        """The id that would go on with the last run."""
        self.extend(tokens)

    @classmethod
    def of(cls, *runs: Run) -> TokenRuns:
        """These runs, one after the other."""
        tokens = cls()
        for run in runs:
            tokens._add(run)
        return tokens

    @classmethod
    def constant(cls, token: TokenId, count: int) -> TokenRuns:
        """One id, so many times."""
        return cls.of(Run(token, 0, count))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[TokenId]:
        return chain.from_iterable(
            range(run.first, run.first + run.size) if run.step else repeat(run.first, run.size) for run in self.runs()
        )

    @overload
    def __getitem__(self, index: int) -> TokenId: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[TokenId]: ...
    def __getitem__(self, index: int | slice) -> TokenId | Sequence[TokenId]:
        if isinstance(index, slice):
            start, stop, stride = index.indices(self._length)
            if stride == 1:
                return TokenRuns.of(*self.runs(start, stop))
            if self.same:
                return TokenRuns.constant(self._firsts[0], len(range(start, stop, stride)))
            return [self[at] for at in range(start, stop, stride)]
        at = index + self._length if index < 0 else index
        if not 0 <= at < self._length:
            raise IndexError(f"index {index} of {self._length} tokens")
        run = bisect_right(self._starts, at) - 1
        return self._firsts[run] + self._steps[run] * (at - self._starts[run])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TokenRuns):
            return self._length == other._length and list(self.runs()) == list(other.runs())
        return NotImplemented

    __hash__ = None  # type: ignore[assignment] # it grows

    def __repr__(self) -> str:
        return f"<{self._length:,} tokens in {len(self._starts):,} runs>"

    @property
    def same(self) -> bool:
        """Whether there are ids, and all are the same."""
        return len(self._starts) == 1 and not self._steps[0]

    def append(self, token: TokenId) -> None:
        if token == self._next:
            self._length += 1
            self._next = token + self._steps[-1]
        else:
            self._add(Run(token, 0, 1))

    def repeat(self, token: TokenId, count: int) -> None:
        """Append one id so many times."""
        if token == self._next and not self._steps[-1]:
            self._length += count
        else:
            self._add(Run(token, 0, count))

    def extend(self, tokens: Iterable[TokenId]) -> None:
        if isinstance(tokens, TokenRuns):
            for run in tokens.runs():
                self._add(run)
        elif isinstance(tokens, range) and tokens.step == 1:
            self._add(Run(tokens.start, 1, len(tokens)))
        elif isinstance(tokens, list) and tokens and tokens.count(tokens[0]) == len(tokens):
            self._add(Run(tokens[0], 0, len(tokens)))
        else:
            for token in tokens:
                self.append(token)

    def runs(self, start: int = 0, stop: int | None = None) -> Iterator[Run]:
        """The runs of positions start .. stop - 1, the first and the last cut to them."""
        end = self._length if stop is None else stop
        if start >= end:
            return
        starts = self._starts
        for i in range(bisect_right(starts, start) - 1, len(starts)):
            begins, ends = starts[i], starts[i + 1] if i + 1 < len(starts) else self._length
            if begins >= end:
                return
            low = max(begins, start)
            yield Run(self._firsts[i] + self._steps[i] * (low - begins), self._steps[i], min(ends, end) - low)

    def _add(self, run: Run) -> None:
        first, step, count = run
        if count < 1:
            return
        step = step if count > 1 else 0
        if not self._continues(first, step, count):
            self._starts.append(self._length)
            self._firsts.append(first)
            self._steps.append(step)
        self._length += count
        self._next = first + step * (count - 1) + self._steps[-1]

    def _continues(self, first: TokenId, step: int, count: int) -> bool:
        """Whether ids go on with the last run. One of a single id has no step yet, and takes that of what follows."""
        if not self._length:
            return False
        last = self._length - self._starts[-1]
        if last == 1:
            wanted = step if count > 1 else first - self._firsts[-1]
            if wanted in (0, 1) and first == self._firsts[-1] + wanted:
                self._steps[-1] = wanted
                return True
            return False
        return first == self._next and (count == 1 or step == self._steps[-1])


class Cycle(Sequence[T]):
    """The same few things, over and over."""

    __slots__ = ("_items", "_times")

    def __init__(self, items: Sequence[T], times: int) -> None:
        self._items = items
        self._times = times

    def __len__(self) -> int:
        return len(self._items) * self._times

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(repeat(self._items, self._times))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        where = range(len(self))[index]
        if isinstance(where, range):
            return [self._items[at % len(self._items)] for at in where]
        return self._items[where % len(self._items)]


class Stretches(Sequence[T]):
    """One thing after the other, each as often as it says."""

    __slots__ = ("_ends", "_items")

    def __init__(self, items: Iterable[tuple[T, int]]) -> None:
        self._items: list[T] = []
        self._ends: list[int] = []
        end = 0
        for item, count in items:
            end += count
            self._items.append(item)
            self._ends.append(end)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(map(repeat, self._items, self._counts()))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        where = range(len(self))[index]
        if isinstance(where, range):
            return [self[at] for at in where]
        return self._items[bisect_right(self._ends, where)]

    def counted(self) -> Counter[T]:
        """How often each thing occurs, in the order in which they first do."""
        found = Counter[T]()
        for item, count in zip(self._items, self._counts(), strict=True):
            found[item] += count
        return found

    def _counts(self) -> list[int]:
        return [end - begin for begin, end in zip([0, *self._ends], self._ends, strict=False)]


def run_keys(
    keys: list[ContentKey], root: bytes, prompt: TokenRuns, output: Sequence[TokenId], blocks: int, size: int
) -> None:
    """Extend the content keys of a described sequence to its first `blocks` full blocks of so many tokens.

    Equal runs from the first token on give equal keys. A block inside one run is numbered from the run's first whole
    block instead of being digested, which is what a simulation of millions of tokens would otherwise spend its time on.
    They are of no use beside those of blocks.chain_keys(): described and stored sequences share nothing.
    """
    content = prompt
    if blocks * size > len(prompt):
        content = TokenRuns(prompt)
        content.extend(output)
    end = 0
    for run in content.runs(0, blocks * size):
        begin, end = end, end + run.size
        # Of a single id nobody knows how it would go on, so a block of one is not numbered where a run begins.
        first = begin + 1 if size == 1 else -(-begin // size)
        _digest_blocks(keys, root, content, min(first, blocks), size)
        last, known = end // size, len(keys)
        if known < last:
            parent = keys[first - 1] if first else root
            base = _digest(parent, [Run(run.first + run.step * (first * size - begin), run.step, size)])
            keys += range(base + known - first, base + last - first)
    _digest_blocks(keys, root, content, blocks, size)


def _digest_blocks(keys: list[ContentKey], root: bytes, content: TokenRuns, blocks: int, size: int) -> None:
    """Keys of blocks with several runs, up to the first so many."""
    for block in range(len(keys), blocks):
        keys.append(_digest(keys[-1] if keys else root, content.runs(block * size, (block + 1) * size)))


def _digest(parent: ContentKey, runs: Iterable[Run]) -> int:
    """128 bits that stand for what came before and for these runs."""
    text = ",".join([f"{first}+{step if size > 1 else 0}*{size}" for first, step, size in runs])
    return int.from_bytes(blake2b(f"{parent!r}:{text}".encode(), digest_size=16).digest(), "big")
