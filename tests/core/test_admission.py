from typing import Any

import pytest

from chairlift.core.admission import check_pool, check_queue, check_request, most_tokens_of
from chairlift.core.config import KVCapacity, SchedulerConfig
from chairlift.core.errors import ConfigError
from chairlift.core.queue import WaitingQueue
from chairlift.core.reasons import Reason
from chairlift.core.request import Refused
from chairlift.core.sequence import Sequence
from tests.core.helpers import request


def _capacity(num_blocks: int = 10, block_size: int = 4, block_bytes: int = 0) -> KVCapacity:
    return KVCapacity(block_size, num_blocks, scratch_block=num_blocks, block_bytes=block_bytes)


def _refusal(of: Any, config: SchedulerConfig, pool: KVCapacity) -> Refused:
    refused = check_request(of, config, pool)
    assert refused is not None
    return refused


@pytest.mark.parametrize(("prompt", "max_tokens", "fits"), [(30, 10, True), (30, 11, False), (40, 1, False)])
def test_a_request_may_take_the_whole_pool_and_not_one_token_more(prompt: int, max_tokens: int, *, fits: bool) -> None:
    """10 blocks of 4: 40 tokens of prompt and answer fit, 41 never do."""
    refused = check_request(request(prompt=prompt, max_tokens=max_tokens), SchedulerConfig(), _capacity())
    assert (refused is None) == fits
    if refused:
        assert (refused.reason, refused.needed, refused.limit) == (Reason.NEVER_FITS, 11, 10)
        assert refused.setting == "num_kv_blocks"


@pytest.mark.parametrize(("prompt", "max_tokens", "fits"), [(12, 8, True), (12, 9, False), (20, 1, False)])
def test_a_request_may_be_as_long_as_max_model_len(prompt: int, max_tokens: int, *, fits: bool) -> None:
    """A prompt and max_tokens that make max_model_len pass, one more does not."""
    refused = check_request(
        request(prompt=prompt, max_tokens=max_tokens), SchedulerConfig(max_model_len=20), _capacity()
    )
    assert (refused is None) == fits
    if refused:
        assert (refused.reason, refused.needed, refused.limit) == (Reason.PROMPT_TOO_LONG, 21, 20)
        assert refused.setting == "max_model_len"


def test_a_refusal_gives_the_numbers_and_the_way_out() -> None:
    """The message can be shown to a user as it is."""
    pool = KVCapacity(block_size=16, num_blocks=49, scratch_block=49, block_bytes=1_400_000)
    refused = _refusal(request(prompt=1002, max_tokens=64), SchedulerConfig(), pool)
    assert refused.message == (
        "prompt of 1,002 tokens + max_tokens 64 needs 67 KV blocks of 16; the whole pool has 49 (784 tokens). "
        "Shorten the request, or start with --num-kv-blocks 67 (about 24 MiB more)."
    )

    refused = _refusal(request(prompt=1002, max_tokens=64), SchedulerConfig(max_model_len=1000), pool)
    assert refused.message == (
        "prompt of 1,002 tokens + max_tokens 64 makes 1,066; the longest sequence allowed is 1,000. "
        "Shorten the request, or start with --max-model-len 1066 if the model was trained for it."
    )


def test_without_block_bytes_the_message_does_not_guess_memory() -> None:
    """A pool of unknown block size in bytes gets no figure in MiB."""
    assert "MiB" not in _refusal(request(prompt=50), SchedulerConfig(), _capacity()).message


def test_under_model_len_every_request_needs_the_longest() -> None:
    """The naive reservation refuses a short request when the pool is too small for max_model_len, and says why."""
    config = SchedulerConfig(kv_reservation="model_len", max_model_len=41)
    refused = _refusal(request(prompt=1, max_tokens=1), config, _capacity())
    assert (refused.needed, refused.limit) == (11, 10)
    assert "since --kv-reservation model_len holds --max-model-len 41 for each," in refused.message


def test_a_pool_too_small_for_the_naive_reservation_is_refused_at_start() -> None:
    """check_pool names the largest --max-model-len that would do, and the blocks that would."""
    check_pool(SchedulerConfig(kv_reservation="model_len", max_model_len=40), _capacity())
    check_pool(SchedulerConfig(max_model_len=4000), _capacity())
    with pytest.raises(ConfigError, match="lower --max-model-len to 40, or raise --num-kv-blocks to 11"):
        check_pool(SchedulerConfig(kv_reservation="model_len", max_model_len=41), _capacity())


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "reason"),
    [(0, 4, Reason.PROMPT_EMPTY), (3, 0, Reason.INVALID), (3, -2, Reason.INVALID)],
)
def test_a_request_that_makes_no_sense_is_refused(prompt: int, max_tokens: int, reason: Reason) -> None:
    """No prompt, or nothing to generate."""
    assert _refusal(request(prompt=prompt, max_tokens=max_tokens), SchedulerConfig(), _capacity()).reason is reason


@pytest.mark.parametrize(
    ("prompt", "max_model_len", "blocks", "most"),
    [(3, 20, 10, 20), (3, 200, 10, 40), (19, 20, 10, 20), (20, 20, 10, 21), (40, 200, 10, 41)],
)
def test_an_absent_max_tokens_is_as_much_as_model_and_pool_allow(
    prompt: int, max_model_len: int, blocks: int, most: int
) -> None:
    """And at least one token, so that a prompt that leaves no room for an answer is refused."""
    config, pool = SchedulerConfig(max_model_len=max_model_len), _capacity(blocks)
    one = request(prompt=prompt, max_tokens=None)
    assert most_tokens_of(one, config, pool) == most
    refused = check_request(one, config, pool)
    assert (refused is None) == (most <= min(max_model_len, 4 * blocks))
    if refused:
        assert "at least one token of answer" in refused.message


def _queue_of(*prompts: int) -> WaitingQueue:
    queue = WaitingQueue("fcfs")
    for number, prompt in enumerate(prompts):
        queue.push(Sequence(request(f"q{number}", prompt=prompt), number=number, arrival=0, max_tokens=1))
    return queue


def test_a_full_queue_refuses_with_the_setting_to_raise() -> None:
    """As many may wait as max_queued_requests says; 0 is no limit."""
    assert check_queue(request(), SchedulerConfig(max_queued_requests=2), _queue_of(1)) is None
    refused = check_queue(request(), SchedulerConfig(max_queued_requests=2), _queue_of(1, 1))
    assert refused is not None
    assert (refused.reason, refused.needed, refused.limit) == (Reason.QUEUE_FULL, 3, 2)
    assert (refused.setting, "--max-queued-requests" in refused.message) == ("max_queued_requests", True)
    assert check_queue(request(), SchedulerConfig(max_queued_requests=0), _queue_of(*[1] * 50)) is None


def test_waiting_tokens_are_limited_too() -> None:
    """Exactly max_queued_tokens may wait; one more is refused with the numbers."""
    config = SchedulerConfig(max_queued_tokens=10)
    assert check_queue(request(prompt=4), config, _queue_of(6)) is None
    refused = check_queue(request(prompt=5), config, _queue_of(6))
    assert refused is not None
    assert (refused.needed, refused.limit, refused.setting) == (11, 10, "max_queued_tokens")


def test_an_empty_queue_takes_a_prompt_of_any_length() -> None:
    """Otherwise a prompt longer than max_queued_tokens could never be served."""
    assert check_queue(request(prompt=50), SchedulerConfig(max_queued_tokens=10), _queue_of()) is None


def test_a_static_batch_is_collected_whatever_its_tokens() -> None:
    """Until batch_size requests wait max_queued_tokens refuses nobody: the batch could never fill, and all would wait
    for ever.
    """
    config = SchedulerConfig(policy="static", batch_size=3, max_queued_tokens=10)
    assert check_queue(request(prompt=9), config, _queue_of(9, 9)) is None
    assert check_queue(request(prompt=9), config, _queue_of(9, 9, 9)) is not None
