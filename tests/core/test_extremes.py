import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.config import KVCapacity, SchedulerConfig
from chairlift.core.extremes import find_extremes


def pool(blocks: int, block_size: int = 16) -> KVCapacity:
    """A pool of so many blocks."""
    return KVCapacity(block_size, blocks, scratch_block=blocks)


def test_both_maxima_together_are_told_with_their_numbers() -> None:
    """8 sequences of 1,024 tokens need 512 blocks of 16; 200 hold three of them, or all eight up to 400 tokens."""
    config = SchedulerConfig(max_num_seqs=8, max_model_len=1024)

    found = find_extremes(config, pool(200))

    assert found is not None
    assert (found.setting, found.whole, found.all_up_to) == ("max_num_seqs", 3, 400)
    assert found.share == pytest.approx(200 / 512)
    assert "--max-num-seqs 8 and --max-model-len 1,024" in str(found)
    assert "the pool has 3,200" in str(found)
    assert "preempted" in str(found)


def test_a_pool_for_all_of_them_is_no_matter() -> None:
    """512 blocks are just enough."""
    assert find_extremes(SchedulerConfig(max_num_seqs=8, max_model_len=1024), pool(512)) is None


@pytest.mark.parametrize(
    ("policy", "setting"), [("static", "batch_size"), ("dynamic", "max_batch_size"), ("continuous", "max_num_seqs")]
)
def test_the_policy_decides_which_limit_counts(policy: str, setting: str) -> None:
    """A closed batch never preempts: beyond the pool its requests wait."""
    config = SchedulerConfig(batch_size=8, max_batch_size=8, max_num_seqs=8, max_model_len=1024).with_policy(policy)  # type: ignore[arg-type]

    found = find_extremes(config, pool(100))

    assert found is not None
    assert found.setting == setting
    assert ("preempted and computed again" in str(found)) == (policy == "continuous")


@given(st.integers(1, 300), st.integers(1, 4096), st.integers(1, 5000), st.sampled_from([1, 16, 32]))
def test_it_is_told_exactly_when_not_all_fit(sequences: int, length: int, blocks: int, size: int) -> None:
    """Whatever the block size: the sum of whole blocks against the pool."""
    config = SchedulerConfig(max_num_seqs=sequences, max_model_len=length, max_num_batched_tokens=4096)

    found = find_extremes(config, pool(blocks, size))

    assert (found is None) == (sequences * -(-length // size) <= blocks)
    if found is not None:
        assert found.whole < sequences
        assert found.all_up_to * sequences <= found.pool_tokens
