from array import array
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chairlift.core.blocks import BlockPool, chain_keys, root_key
from chairlift.core.errors import IntegrityError


def _table_of(pool: BlockPool, count: int) -> "array[int]":
    table = array("i")
    assert pool.allocate(table, count)
    return table


def _publish(pool: BlockPool, table: "array[int]", tokens: list[int], salt: str = "") -> list[bytes]:
    keys = chain_keys(root_key(salt), tokens, pool.block_size)
    pool.publish(table, keys, 0, len(keys))
    return keys


def test_a_key_stands_for_everything_before_its_block() -> None:
    """Two blocks have equal keys only when their own tokens, all tokens before them and the salt are equal."""
    keys = chain_keys(root_key(""), [1, 2, 3, 4], 2)

    assert keys == chain_keys(root_key(""), [1, 2, 3, 4, 5], 2), "a block that is not full has no key"
    assert keys[0] == chain_keys(root_key(""), [1, 2], 2)[0]
    assert chain_keys(keys[0], [3, 4], 2) == keys[1:], "a chain is continued from its last key"
    assert keys[1] != chain_keys(root_key(""), [9, 2, 3, 4], 2)[1]
    assert keys[0] != chain_keys(root_key("tenant"), [1, 2], 2)[0]
    assert keys[0] != chain_keys(root_key(""), [2, 1], 2)[0]


def test_a_range_has_the_keys_of_its_list() -> None:
    """A virtual prompt shares with a real one."""
    assert chain_keys(root_key(""), range(5, 15), 3) == chain_keys(root_key(""), list(range(5, 15)), 3)


def test_keys_are_equal_in_every_process() -> None:
    """A known digest: nothing in it depends on the process, its hash seed or its platform."""
    (key,) = chain_keys(root_key(""), [1, 2], 2)
    assert key.hex() == "b06f0c667fcccdcd4e38bba3022e26cb"


def test_allocation_takes_all_or_nothing() -> None:
    """A request for more blocks than there are changes nothing; one for exactly all of them succeeds."""
    pool, table = BlockPool(4, 16), array("i")

    assert not pool.allocate(table, 5)
    assert (list(table), pool.free_blocks) == ([], 4)
    assert pool.allocate(table, 4)
    assert (sorted(table), pool.free_blocks, pool.used_blocks) == ([0, 1, 2, 3], 0, 4)
    assert not pool.allocate(table, 1)
    assert pool.allocate(table, 0)


def test_one_block_for_each_of_several_tables_is_all_or_nothing() -> None:
    """allocate_each gives every table one block, or none of them any."""
    pool = BlockPool(3, 16)
    tables = [array("i"), array("i")]

    assert pool.allocate_each(tables)
    assert [len(table) for table in tables] == [1, 1]
    assert not pool.allocate_each(tables)
    assert [len(table) for table in tables] == [1, 1]
    pool.check_integrity(tables)


def test_released_blocks_without_known_content_are_free() -> None:
    """A block that nobody published is of no use to anybody once it is released."""
    pool = BlockPool(4, 2)
    table = _table_of(pool, 3)

    pool.release(table)

    assert (list(table), pool.free_blocks, pool.cached_blocks) == ([], 4, 0)


def test_published_blocks_stay_known_until_they_are_needed() -> None:
    """A released, published block is found by its content; it counts as free; allocation takes it back last."""
    pool = BlockPool(3, 2)
    table = _table_of(pool, 2)
    keys = _publish(pool, table, [1, 2, 3, 4])
    blocks = list(table)
    pool.release(table)

    assert (pool.free_blocks, pool.cached_blocks) == (3, 2)
    assert pool.lookup(keys, 2) == blocks
    assert pool.lookup(keys, 1) == blocks[:1], "no more than asked for"
    other = _table_of(pool, 1)
    assert not set(other) & set(blocks), "the free one first"
    assert pool.evictions == 0


def test_the_end_of_a_chain_is_evicted_before_its_beginning() -> None:
    """Least recently used first, and of one table the last block first, since the others are worth more."""
    pool = BlockPool(4, 2)
    old, new = _table_of(pool, 2), _table_of(pool, 2)
    old_keys, new_keys = _publish(pool, old, [1, 2, 3, 4]), _publish(pool, new, [5, 6, 7, 8])
    pool.release(old)
    pool.release(new)

    _table_of(pool, 1)
    assert len(pool.lookup(old_keys, 2)) == 1, "the older table's last block went"
    _table_of(pool, 1)
    assert pool.lookup(old_keys, 2) == []
    _table_of(pool, 1)
    assert len(pool.lookup(new_keys, 2)) == 1
    assert pool.evictions == 3


def test_use_makes_a_cached_block_young_again() -> None:
    """A shared block goes to the back of the eviction order when it is released."""
    pool = BlockPool(2, 2)
    first, second = _table_of(pool, 1), _table_of(pool, 1)
    first_keys, second_keys = _publish(pool, first, [1, 2]), _publish(pool, second, [3, 4])
    pool.release(first)
    pool.release(second)

    user = array("i")
    pool.share(user, pool.lookup(first_keys, 1))
    pool.release(user)
    _table_of(pool, 1)

    assert pool.lookup(second_keys, 1) == []
    assert len(pool.lookup(first_keys, 1)) == 1


def test_a_shared_block_is_used_until_the_last_holder_lets_go() -> None:
    """Reference counts: sharing takes a block out of the free ones, and each release gives one reference back."""
    pool = BlockPool(2, 2)
    first, second = _table_of(pool, 1), array("i")
    keys = _publish(pool, first, [1, 2])
    found = pool.lookup(keys, 1)

    assert pool.idle(found) == 0
    pool.share(second, found)
    pool.release(first)
    assert (pool.used_blocks, pool.cached_blocks) == (1, 0)
    pool.release(second)
    assert (pool.used_blocks, pool.cached_blocks) == (0, 1)
    assert pool.idle(found) == 1


def test_the_first_block_of_a_content_stays_the_known_one() -> None:
    """Two requests computed the same at once: the second block is not known, and is free when released."""
    pool = BlockPool(2, 2)
    first, second = _table_of(pool, 1), _table_of(pool, 1)
    keys = _publish(pool, first, [1, 2])
    _publish(pool, second, [1, 2])

    assert pool.lookup(keys, 1) == list(first)
    pool.release(second)
    assert (pool.free_blocks, pool.cached_blocks) == (1, 0)
    pool.check_integrity([first])


def test_lookup_stops_at_the_first_gap() -> None:
    """A later block is of no use without the ones before it."""
    pool = BlockPool(3, 1)
    table = _table_of(pool, 3)
    keys = chain_keys(root_key(""), [1, 2, 3], 1)
    pool.publish(table, keys, 0, 1)
    pool.publish(table, keys, 2, 3)

    assert pool.lookup(keys, 3) == [table[0]]


def test_forget_cache_gives_up_all_that_nobody_uses() -> None:
    """After it nothing rests in the cache, and what is in use stays known."""
    pool = BlockPool(4, 1)
    used, resting = _table_of(pool, 1), _table_of(pool, 2)
    used_keys, resting_keys = _publish(pool, used, [1]), _publish(pool, resting, [5, 6])
    pool.release(resting)

    assert pool.forget_cache() == 2
    assert (pool.free_blocks, pool.cached_blocks) == (3, 0)
    assert pool.lookup(resting_keys, 2) == []
    assert pool.lookup(used_keys, 1) == list(used)
    pool.check_integrity([used])


def test_the_largest_free_run_counts_adjacent_blocks() -> None:
    """What is left of contiguous memory: free and cached blocks side by side."""
    pool = BlockPool(6, 1)
    tables = [_table_of(pool, 1) for _ in range(6)]
    assert pool.largest_free_run() == 0
    for table in sorted(tables, key=lambda table: table[0])[1:3]:
        pool.release(table)
    assert pool.largest_free_run() == 2
    assert BlockPool(5, 1).largest_free_run() == 5


def _break_references(pool: BlockPool, table: "array[int]") -> None:
    pool._references[table[0]] += 1


def _lose_a_block(pool: BlockPool, table: "array[int]") -> None:
    pool._free.pop()


def _free_twice(pool: BlockPool, table: "array[int]") -> None:
    pool._free.append(pool._free[0])


def _misfile(pool: BlockPool, table: "array[int]") -> None:
    pool._index[b"elsewhere"] = table[0]


def _forget_the_index(pool: BlockPool, table: "array[int]") -> None:
    pool._index.clear()


def _spoil_a_free_block(pool: BlockPool, table: "array[int]") -> None:
    block = pool._free[0]
    pool._keys[block], pool._index[b"x"] = b"x", block


@pytest.mark.parametrize(
    "damage", [_break_references, _lose_a_block, _free_twice, _misfile, _forget_the_index, _spoil_a_free_block]
)
def test_damage_to_the_books_is_found(damage: Callable[[BlockPool, "array[int]"], None]) -> None:
    """check_integrity counts everything again, and says which part does not balance."""
    pool = BlockPool(4, 2)
    table = _table_of(pool, 2)
    _publish(pool, table, [1, 2, 3, 4])
    pool.check_integrity([table])

    damage(pool, table)

    with pytest.raises(IntegrityError):
        pool.check_integrity([table])


def test_a_table_that_nobody_counted_is_found() -> None:
    """A block in use that no table names has leaked."""
    pool = BlockPool(4, 2)
    _table_of(pool, 1)
    with pytest.raises(IntegrityError, match=r"block . has 1 references, but 0 tables name it"):
        pool.check_integrity([])


class PoolMachine(RuleBasedStateMachine):
    """Tables that come, share, grow, are published and go, against a model of what every block holds."""

    @initialize(blocks=st.integers(1, 12), size=st.integers(1, 3))
    def start(self, blocks: int, size: int) -> None:
        self.pool = BlockPool(blocks, size)
        self.size = size
        self.tables: list[tuple[array[int], list[int]]] = []
        """Each with the tokens that it stands for."""
        self.content: dict[int, tuple[int, ...]] = {}
        """Block -> all tokens up to its end, once published."""

    @rule(length=st.integers(0, 8), family=st.integers(0, 1))
    def admit(self, length: int, family: int) -> None:
        """Share what is known of a prefix, allocate the rest; or nothing."""
        pool, size = self.pool, self.size
        tokens = [family] * (length * size)
        keys = chain_keys(root_key(""), tokens, size)
        found = pool.lookup(keys, length)
        for i, block in enumerate(found):
            assert self.content[block] == tuple(tokens[: (i + 1) * size]), "a hit holds what its key says"
        needed = length - len(found) + pool.idle(found)
        fits = needed <= pool.free_blocks
        table = array("i")
        pool.share(table, found)
        assert pool.allocate(table, length - len(found)) == fits
        if fits:
            self.tables.append((table, tokens))
            self._forget_overwritten(table[len(found) :])
        else:
            pool.release(table)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        table, tokens = data.draw(st.sampled_from(self.tables))
        last = data.draw(st.integers(0, len(table)))
        keys = chain_keys(root_key(""), tokens, self.size)
        self.pool.publish(table, keys, 0, min(last, len(keys)))
        for i in range(min(last, len(keys))):
            if self.pool.lookup(keys[i : i + 1], 1) == [table[i]]:
                self.content[table[i]] = tuple(tokens[: (i + 1) * self.size])

    @precondition(lambda self: self.tables)
    @rule()
    def grow_all(self) -> None:
        tables = [table for table, _ in self.tables]
        fits = len(tables) <= self.pool.free_blocks
        assert self.pool.allocate_each(tables) == fits
        if fits:
            self._forget_overwritten([table[-1] for table in tables])

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.tables) - 1))
        table, _ = self.tables.pop(index)
        self.pool.release(table)
        assert len(table) == 0

    @rule()
    def forget(self) -> None:
        assert self.pool.forget_cache() >= 0
        assert self.pool.cached_blocks == 0

    @invariant()
    def balanced(self) -> None:
        pool = self.pool
        pool.check_integrity(table for table, _ in self.tables)
        assert pool.used_blocks + pool.cached_blocks + len(pool._free) == pool.num_blocks
        assert pool.used_blocks == len({block for table, _ in self.tables for block in table})
        assert 0 <= pool.largest_free_run() <= pool.free_blocks

    def _forget_overwritten(self, blocks: "array[int] | list[int]") -> None:
        for block in blocks:
            self.content.pop(block, None)


class TestPool(PoolMachine.TestCase):  # type: ignore[misc,valid-type] # made by hypothesis at run time
    """Blocks are in exactly one place, reference counts are right, and a hit holds what its key says."""

    settings = settings(max_examples=settings().max_examples, stateful_step_count=30)


def test_the_most_blocks_in_use_are_remembered_until_they_are_asked_for() -> None:
    """Three and then two of them at once, whatever was given back before the question; shared ones count once."""
    pool = BlockPool(8, 4)
    first, second, third = array("i"), array("i"), array("i")
    pool.allocate(first, 2)
    pool.allocate_each([second])
    pool.share(third, list(second))
    pool.release(first)

    assert pool.take_peak() == 3
    pool.allocate(first, 1)
    pool.release(first)
    assert pool.take_peak() == 2
    assert pool.take_peak() == 1
