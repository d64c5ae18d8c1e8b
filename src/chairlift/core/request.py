"""What is asked of the scheduler, and the verdict at the door.

Times are integer nanoseconds on whatever clock the caller uses, real or virtual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from chairlift.core.reasons import Reason

Nanoseconds = int
TokenId = int

NO_STOP_IDS: frozenset[TokenId] = frozenset()


class FinishReason(StrEnum):
    """Why a request ended. The first two are OpenAI's words for a good end."""

    STOP = "stop"
    """A stop token or stop string was generated."""
    LENGTH = "length"
    """max_tokens or max_model_len was reached."""
    CANCELLED = "cancelled"
    """The client left, or the request was cancelled."""
    ERROR = "error"
    """The device failed on this request; the message says how."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and how much may be generated from it."""

    request_id: str
    """Unique among the requests the scheduler holds."""

    prompt: Sequence[TokenId]
    """Token ids. Never changed by the scheduler. A simulation may pass a `range`, which costs no memory."""

    max_tokens: int | None = None
    """Most tokens to generate. None: up to max_model_len (or what the whole KV pool holds)."""

    min_tokens: int = 0
    """Stop ids do not end the request before this many tokens were generated."""

    stop_ids: frozenset[TokenId] = NO_STOP_IDS
    """Token ids that end the request when generated. Empty ignores the model's own end-of-sequence."""

    priority: int = 0
    """Lower runs first under queue_order=priority, and is preempted last under every order."""

    arrival: Nanoseconds | None = None
    """When it was due. None: the `now` of submit()."""

    cache_salt: str = ""
    """Whatever changes the keys and values besides the tokens (an adapter, a tenant). Blocks are shared only
    between requests of equal salt."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The request waits in the queue."""

    request_id: str
    max_tokens: int
    """What it may generate at most, with max_model_len and the pool taken into account."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The request was turned away at the door and leaves no trace in the scheduler."""

    request_id: str
    reason: Reason
    message: str
    """One sentence with the numbers and the way out, fit to be shown to the user."""
    needed: int
    """What the request needs, in the unit of the limit it met (blocks, tokens or requests)."""
    limit: int
    """What there is, in the same unit."""
    setting: str
    """The setting to change, by its field name."""


Verdict = Accepted | Refused
