"""The door: can this request ever fit, and is there room in the queue?

Refusing here, with the numbers and the setting to raise, is what keeps a request from waiting for ever.
"""

from __future__ import annotations

from chairlift.core.config import KVCapacity, SchedulerConfig, flag
from chairlift.core.errors import ConfigError
from chairlift.core.queue import WaitingQueue
from chairlift.core.reasons import Reason
from chairlift.core.request import Refused, Request

_MIB = 1024 * 1024


def blocks_for(tokens: int, block_size: int) -> int:
    """Blocks that hold so many positions."""
    return -(-tokens // block_size)


def most_tokens_of(request: Request, config: SchedulerConfig, capacity: KVCapacity) -> int:
    """Prompt and answer together at most.

    An absent max_tokens means as much as max_model_len and the whole pool allow.
    """
    if request.max_tokens is not None:
        return len(request.prompt) + request.max_tokens
    return max(len(request.prompt) + 1, min(config.max_model_len, capacity.num_blocks * capacity.block_size))


def check_pool(config: SchedulerConfig, capacity: KVCapacity) -> None:
    """Whether the pool can serve anybody. Raises ConfigError."""
    if config.effective_kv_reservation != "model_len":
        return
    needed = blocks_for(config.max_model_len, capacity.block_size)
    if needed > capacity.num_blocks:
        raise ConfigError(
            f"--kv-reservation model_len holds {needed:,} KV blocks of {capacity.block_size} for each sequence; the "
            f"whole pool has {capacity.num_blocks:,}: lower --max-model-len to "
            f"{capacity.num_blocks * capacity.block_size}, or raise --num-kv-blocks to {needed}."
        )


def check_request(request: Request, config: SchedulerConfig, capacity: KVCapacity) -> Refused | None:
    """Gate 1: could it run if it were alone?"""
    prompt = len(request.prompt)
    if prompt == 0:
        return Refused(request.request_id, Reason.PROMPT_EMPTY, "the prompt has no tokens.", 1, 0, "prompt")
    if request.max_tokens is not None and request.max_tokens < 1:
        message = f"max_tokens is {request.max_tokens}; it must be at least 1."
        return Refused(request.request_id, Reason.INVALID, message, 1, request.max_tokens, "max_tokens")
    most = most_tokens_of(request, config, capacity)
    answer = "at least one token of answer" if request.max_tokens is None else f"max_tokens {request.max_tokens:,}"
    if most > config.max_model_len:
        message = (
            f"prompt of {prompt:,} tokens + {answer} makes {most:,}; "
            f"the longest sequence allowed is {config.max_model_len:,}. "
            f"Shorten the request, or start with {flag('max_model_len')} {most} if the model was trained for it."
        )
        return Refused(request.request_id, Reason.PROMPT_TOO_LONG, message, most, config.max_model_len, "max_model_len")
    held = config.max_model_len if config.effective_kv_reservation == "model_len" else most
    needed = blocks_for(held, capacity.block_size)
    if needed > capacity.num_blocks:
        return Refused(
            request.request_id,
            Reason.NEVER_FITS,
            _never_fits(prompt, answer, needed, config, capacity),
            needed,
            capacity.num_blocks,
            "num_kv_blocks",
        )
    return None


def check_queue(request: Request, config: SchedulerConfig, queue: WaitingQueue) -> Refused | None:
    """Gate 2: a queue without a bound only hides that the server is too slow."""
    waiting = len(queue)
    if config.max_queued_requests and waiting >= config.max_queued_requests:
        message = (
            f"{waiting:,} requests wait already, as many as {flag('max_queued_requests')} allows. "
            "Try again later, or raise it."
        )
        return Refused(request.request_id, Reason.QUEUE_FULL, message, waiting + 1, waiting, "max_queued_requests")
    tokens = queue.tokens + len(request.prompt)
    # An empty queue takes any prompt: otherwise a long one could never be served at all. So does one in which a static
    # batch is still being collected: it would never fill.
    least = config.batch_size if config.policy == "static" else 1
    if config.max_queued_tokens and waiting >= least and tokens > config.max_queued_tokens:
        message = (
            f"{queue.tokens:,} prompt tokens wait already; {len(request.prompt):,} more would pass "
            f"{flag('max_queued_tokens')} {config.max_queued_tokens:,}. Try again later, or raise it."
        )
        return Refused(
            request.request_id, Reason.QUEUE_FULL, message, tokens, config.max_queued_tokens, "max_queued_tokens"
        )
    return None


def _never_fits(prompt: int, answer: str, needed: int, config: SchedulerConfig, capacity: KVCapacity) -> str:
    usable = capacity.num_blocks
    more = f" (about {(needed - usable) * capacity.block_bytes / _MIB:,.0f} MiB more)" if capacity.block_bytes else ""
    held = ""
    if config.effective_kv_reservation == "model_len":
        held = f", since --kv-reservation model_len holds --max-model-len {config.max_model_len:,} for each,"
    return (
        f"prompt of {prompt:,} tokens + {answer}{held} needs {needed:,} KV blocks of {capacity.block_size}; "
        f"the whole pool has {usable:,} ({usable * capacity.block_size:,} tokens). "
        f"Shorten the request, or start with --num-kv-blocks {needed}{more}."
    )
