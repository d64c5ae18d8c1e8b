"""Random set-ups, requests and switches for the property tests: small pools, so that everything that can be short is.

All are made from a seed rather than drawn value by value: a load has to be dense before it meets anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, get_args

from hypothesis import strategies as st

from chairlift.core.config import POLICIES, KVCapacity, PolicyName, QueueOrder, SchedulerConfig
from chairlift.core.request import NO_STOP_IDS, Request
from chairlift.core.runs import TokenRuns
from tests.core.helpers import MILLISECOND, blocks_of

VOCABULARY = 97
"""Few enough tokens for stop ids to be met, too many for a wrong context to give the right answer for long."""

SEEDS = st.integers(0, 2**32 - 1)

_RESERVATIONS = {"continuous": (None, "prompt", "full", "model_len"), "closed": (None, "full", "model_len")}
_PADDINGS = {"continuous": (None, "none"), "closed": (None, "longest", "none")}
_RELEASES = {"continuous": (None, "token", "request"), "closed": (None, "batch", "request", "token")}


@dataclass(frozen=True)
class Setup:
    """Settings, and a pool that serves somebody under them."""

    config: SchedulerConfig
    capacity: KVCapacity


def _for_policy(draw: Random, policy: PolicyName) -> dict[str, Any]:
    """The settings that not every policy allows; mostly the defaults, which all do."""
    kind = "continuous" if policy == "continuous" else "closed"
    choices = {"kv_reservation": _RESERVATIONS, "padding": _PADDINGS, "release": _RELEASES}
    return {name: draw.choice(by_kind[kind]) if draw.random() < 0.4 else None for name, by_kind in choices.items()}


def random_setup(seed: int, **fixed: Any) -> Setup:
    """Any valid settings; `fixed` ones are not drawn."""
    draw = Random(f"setup {seed}")
    policy = fixed.pop("policy", None) or draw.choice((*POLICIES, "continuous"))
    block_size = draw.choice((1, 1, 3, 5, 16, 16, 32))
    max_model_len = draw.randint(2, draw.choice((16, 100)))
    rows = {name: draw.randint(1, 6) for name in ("max_num_seqs", "batch_size", "max_batch_size")}
    chunked = draw.random() < 0.6
    least = max(*rows.values(), 1 if chunked else max_model_len)
    settings: dict[str, Any] = {
        "max_model_len": max_model_len,
        **rows,
        "enable_chunked_prefill": chunked,
        "max_num_batched_tokens": least + draw.randrange(30),
        **_for_policy(draw, policy),
        "queue_order": draw.choice(get_args(QueueOrder)),
        "enable_prefix_caching": draw.random() < 0.7,
        "max_queued_requests": draw.choice((1024, 1024, 0, 8)),
        "max_queued_tokens": draw.choice((0, 0, 0, 100)),
        "max_wait": draw.choice((None, None, 1, 40 * MILLISECOND)),
        "max_queue_delay": draw.choice((0, 1, 30 * MILLISECOND)),
        "preferred_batch_sizes": tuple({draw.randint(1, rows["max_batch_size"]) for _ in range(draw.randrange(3))}),
        "watermark": draw.choice((0.0, 0.0, 0.0, 0.01, 0.3, 0.9)),
        "prefill_interval": draw.choice((1, 1, 2, 4)),
        "prefill_interval_load": draw.choice((0.0, 0.5, 1.0)),
        "target_itl": draw.choice((None, None, 1, 23 * MILLISECOND, 40 * MILLISECOND)),
    }
    settings |= fixed
    longest = blocks_of(settings["max_model_len"], block_size)
    # Mostly enough for the longest request and too few for all that may run.
    num_blocks = draw.randint(longest, draw.choice((1, 1, 2, 5)) * longest + longest // 4)
    if settings["kv_reservation"] != "model_len" and draw.random() < 0.1:
        num_blocks = draw.randint(1, longest)
    return Setup(
        SchedulerConfig(policy=policy, **settings), KVCapacity(block_size, num_blocks, scratch_block=num_blocks)
    )


def random_request(name: str, setup: Setup, now: int, seed: int, past: Sequence[Sequence[int]] = ()) -> Request:
    """A request that rarely has to be refused; prompts begin alike more often than not, or with `past` sequences."""
    draw = Random(f"{name} {seed}")
    room = min(setup.config.max_model_len, setup.capacity.num_blocks * setup.capacity.block_size)
    family, own = draw.randrange(2), draw.choice((0, 0, 1, 3))
    longest = max(1, int((room - own - 1) * draw.random() ** draw.choice((0.3, 2, 5))))
    alike: Sequence[int] = range(1000 * family, 1000 * family + longest)
    if past and draw.random() < 0.4:
        alike = draw.choice(past)[:longest]
        longest = len(alike)
    left = room - longest - own
    most = draw.choice((None, left, max(1, min(left, draw.randint(1, 12))), draw.randint(1, max(1, left))))
    if draw.random() < 0.03:
        most = draw.choice((0, left + 1))
    prompt = [*alike, *(draw.randrange(100_000, 200_000) for _ in range(own))] if own else alike
    return Request(
        name,
        prompt=TokenRuns(prompt) if draw.random() < 0.3 else prompt,
        max_tokens=most,
        min_tokens=draw.choice((0, 0, 3)),
        stop_ids=draw.choice((NO_STOP_IDS, NO_STOP_IDS, NO_STOP_IDS, frozenset(range(5)), frozenset(range(40, 90)))),
        priority=draw.randrange(3),
        arrival=draw.choice((None, None, None, now, max(0, now - 45 * MILLISECOND), now + MILLISECOND)),
        cache_salt=draw.choice(("", "", "", "tenant")),
    )


def random_switch(setup: Setup, seed: int) -> tuple[PolicyName, dict[str, Any]]:
    """A policy to go to, and settings that change with it. Not every one of these is allowed."""
    draw = Random(seed)
    policy = draw.choice(POLICIES)
    changes = _for_policy(draw, policy)
    more: tuple[dict[str, Any], ...] = (
        {"max_num_seqs": 1},
        {"max_num_seqs": 2, "max_num_batched_tokens": 5, "enable_chunked_prefill": True},
        {"batch_size": 2, "max_wait": None},
        {"max_num_batched_tokens": setup.config.max_num_batched_tokens + 1},
        {"watermark": 0.0, "target_itl": None, "prefill_interval": 2},
    )
    if draw.random() < 0.4:
        changes |= draw.choice(more)
    return policy, changes
