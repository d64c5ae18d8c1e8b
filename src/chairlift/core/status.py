"""What the scheduler says of itself at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.core.config import PolicyName
from chairlift.core.request import Nanoseconds


@dataclass(frozen=True, slots=True)
class Health:
    """Whether pending work can be scheduled."""

    ok: bool
    cause: str = ""
    since: Nanoseconds | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Queue, batch and pool as they stand."""

    policy: PolicyName
    switching_to: PolicyName | None
    waiting: int
    waiting_tokens: int
    running: int
    kv_blocks: int
    kv_used: int
    kv_cached: int
    """Not in use, content kept for sharing."""
    kv_reserved_unused: int
    """Positions held by running sequences and not computed: reservations not used yet, and waste in last blocks."""
    kv_largest_free_run: int
    evictions: int
