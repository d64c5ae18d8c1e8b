"""The KV pool: which block holds what, who holds it, and what may be taken back.

A block is in exactly one of three places:
  used    somebody's table names it (reference count above zero);
  cached  nobody does, but it holds a full block of known content that a later request may share;
  free    nobody does, and its content is of no use.
Both of the last two can be allocated: free blocks first, then cached ones, least recently used first.

A full block is known by a chained digest: its own tokens and the digest of everything before it, begun with
the request's cache salt. Equal digest, equal keys and values. A cryptographic hash (blake2b, 128 bits) rather than
Python's hash(), because a collision would show one user the cache of another, and it must be equal in every process.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import islice

from chairlift.core.errors import IntegrityError
from chairlift.core.request import TokenId
from chairlift.core.runs import ContentKey

BlockId = int

_DIGEST_BYTES = 16


def root_key(cache_salt: str) -> bytes:
    """The key that the first block of a sequence chains to."""
    return blake2b(cache_salt.encode(), digest_size=_DIGEST_BYTES).digest()


def chain_keys(parent: bytes, tokens: Sequence[TokenId], block_size: int) -> list[bytes]:
    """The keys of the full blocks that these tokens fill, after the content known as `parent`."""
    content = array("q", tokens).tobytes()
    stride = block_size * 8
    keys = []
    for end in range(stride, len(content) + 1, stride):
        parent = blake2b(parent + content[end - stride : end], digest_size=_DIGEST_BYTES).digest()
        keys.append(parent)
    return keys


class BlockPool:
    """Reference-counted KV blocks with prefix sharing and LRU eviction.

    Tables are array('i') owned by the caller; the pool appends to them and empties them, and never keeps them.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.evictions = 0
        """Cached blocks whose content was given up for new content."""
        self._peak = 0
        self._free: list[BlockId] = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[BlockId, None] = OrderedDict()
        """In order of release: the first is the least recently used."""
        self._references = [0] * num_blocks
        self._keys: list[ContentKey | None] = [None] * num_blocks
        self._index: dict[ContentKey, BlockId] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks that can be allocated: free and cached."""
        return len(self._free) + len(self._cached)

    @property
    def cached_blocks(self) -> int:
        return len(self._cached)

    @property
    def used_blocks(self) -> int:
        return self.num_blocks - self.free_blocks

    def take_peak(self) -> int:
        """Most blocks that were in use at once since this was last asked."""
        peak, self._peak = self._peak, self.used_blocks
        return peak

    def allocate(self, table: array[int], count: int) -> bool:
        """Append `count` blocks of unknown content to the table.

        Returns False, and nothing changes, when there are too few.
        """
        if count > self.free_blocks:
            return False
        free, references = self._free, self._references
        for _ in range(count):
            block = free.pop() if free else self._evict()
            references[block] = 1
            table.append(block)
        self._peak = max(self._peak, self.used_blocks)
        return True

    def allocate_each(self, tables: Sequence[array[int]]) -> bool:
        """Append one block to each of these tables; False, and nothing changes, when there are too few."""
        if len(tables) > self.free_blocks:
            return False
        free, cached, references = self._free, self._cached, self._references
        keys, index = self._keys, self._index
        for table in tables:
            if free:
                block = free.pop()
            else:
                block, _ = cached.popitem(last=False)
                del index[keys[block]]  # type: ignore[arg-type] # a cached block has a key
                keys[block] = None
                self.evictions += 1
            references[block] = 1
            table.append(block)
        self._peak = max(self._peak, self.used_blocks)
        return True

    def lookup(self, keys: Iterable[ContentKey], most: int) -> list[BlockId]:
        """The blocks that hold these chained contents, `most` at most, up to the first that none holds.

        Takes no reference.
        """
        found: list[BlockId] = []
        index = self._index
        for key in islice(keys, most):
            block = index.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def idle(self, blocks: Iterable[BlockId]) -> int:
        """How many of these blocks nobody uses: sharing them takes them out of free_blocks."""
        return sum(self._references[block] == 0 for block in blocks)

    def share(self, table: array[int], blocks: Iterable[BlockId]) -> None:
        """Append blocks found by lookup() to a table, one more reference each."""
        for block in blocks:
            if self._references[block] == 0:
                del self._cached[block]
            self._references[block] += 1
            table.append(block)
        self._peak = max(self._peak, self.used_blocks)

    def publish(self, table: array[int], keys: Sequence[ContentKey], first: int, last: int) -> None:
        """Say what the used, full blocks `first` to `last` - 1 of a table hold, so that others may share them.

        Where another block is known for the same content already, that one stays the known one.
        """
        index, known = self._index, self._keys
        for i in range(first, last):
            key, block = keys[i], table[i]
            if known[block] is None and index.setdefault(key, block) == block:
                known[block] = key

    def release(self, table: array[int], *, spoilt: bool = False) -> None:
        """Drop the table's references and empty it. Its end is released first, and so evicted before what it builds
        on.

        What is `spoilt` stays known to nobody, unless somebody else uses it.
        """
        references, keys = self._references, self._keys
        for block in reversed(table):
            references[block] -= 1
            if references[block] == 0:
                if spoilt:
                    self._forget(block)
                if keys[block] is None:
                    self._free.append(block)
                else:
                    self._cached[block] = None
        del table[:]

    def forget_cache(self) -> int:
        """Give up every cached block, such as before a measurement. Returns how many there were."""
        dropped = list(self._cached)
        self._cached.clear()
        for block in dropped:
            self._forget(block)
        self._free += dropped
        return len(dropped)

    def largest_free_run(self) -> int:
        """Longest run of adjacent block ids that could be allocated: what is left of contiguous memory."""
        longest = run = 0
        for references in self._references:
            run = run + 1 if references == 0 else 0
            longest = max(longest, run)
        return longest

    def check_integrity(self, tables: Iterable[array[int]]) -> None:
        """Count everything again from the tables in use. Raises IntegrityError with the first discrepancy."""
        counted = Counter(block for table in tables for block in table)
        for block, references in enumerate(self._references):
            if counted[block] != references:
                raise IntegrityError(f"block {block} has {references} references, but {counted[block]} tables name it.")
        idle = {block for block in range(self.num_blocks) if self._references[block] == 0}
        resting = [*self._free, *self._cached]
        if len(resting) != len(idle) or set(resting) != idle:
            raise IntegrityError(
                f"{len(idle)} blocks have no references, but {len(self._free)} are free and {len(self._cached)} cached."
            )
        for key, block in self._index.items():
            if self._keys[block] != key:
                raise IntegrityError(f"block {block} is known by content that it does not hold.")
        if sum(key is not None for key in self._keys) != len(self._index):
            raise IntegrityError("a block holds content that the index does not know.")
        if any(self._keys[block] is None for block in self._cached) or any(self._keys[block] for block in self._free):
            raise IntegrityError("a cached block without content, or a free block with content.")

    def _evict(self) -> BlockId:
        # An OrderedDict, because finding the first key of a plain one walks over all that were removed before it.
        block, _ = self._cached.popitem(last=False)
        self.evictions += 1
        self._forget(block)
        return block

    def _forget(self, block: BlockId) -> None:
        key = self._keys[block]
        if key is not None:
            del self._index[key]
            self._keys[block] = None
