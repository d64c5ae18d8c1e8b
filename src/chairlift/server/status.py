"""One line in the log now and then while there is work: what runs, what waits, how fast."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from chairlift.core.request import Nanoseconds
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.core import EngineStats

logger = logging.getLogger("chairlift.server")

_LOOK_EVERY = 1.0
"""Seconds between looks, so that a change of health is told soon."""


class StatusLines:
    """Writes at most one line an interval, none while nothing happens, and one when health changes.

    Args:
        engine: whose state is told.
        interval: ns between two lines; 0 for none but those on health.
    """

    def __init__(self, engine: AsyncEngine, interval: Nanoseconds) -> None:
        self._engine = engine
        self._interval = interval
        self._last: EngineStats | None = None
        self._told: Nanoseconds = 0
        self._healthy = True

    async def run(self, ended: Callable[[], bool]) -> None:
        """Until it has ended: a server on its way out is not unhealthy."""
        while not ended():
            self.look(self._engine.core.now())
            await asyncio.sleep(_LOOK_EVERY)

    def look(self, now: Nanoseconds) -> None:
        """Write what is due."""
        health = self._engine.health()
        if health.ok != self._healthy:
            self._healthy = health.ok
            if health.ok:
                logger.info("healthy again: work is scheduled.")
            else:
                logger.error("unhealthy: %s", health.cause)
        if self._last is None:
            self._last, self._told = self._engine.stats(), now
        elif self._interval and now - self._told >= self._interval:
            stats = self._engine.stats()
            if stats.ledger.steps != self._last.ledger.steps or stats.usage.waiting:
                logger.info("%s", line(self._last, stats, (now - self._told) / 1e9))
            self._last, self._told = stats, now


def line(before: EngineStats, after: EngineStats, seconds: float) -> str:
    """What happened between two moments, `seconds` apart.

    `useful` is prefill and decode tokens / all computed tokens of the span.
    """
    usage, old, new = after.usage, before.ledger.tokens, after.ledger.tokens
    computed = new.total - old.total
    parts = [
        f"{usage.policy}: {usage.running} running, {usage.waiting} waiting",
        f"KV {usage.kv_used / usage.kv_blocks:.0%}",
        f"{(new.prefill - old.prefill) / seconds:,.0f} prompt tokens/s",
        f"{(after.counters.output_tokens - before.counters.output_tokens) / seconds:,.1f} output tokens/s",
    ]
    if computed:
        parts.append(f"useful {(new.useful - old.useful) / computed:.0%}")
    if preempted := after.counters.preemptions - before.counters.preemptions:
        parts.append(f"{preempted} preempted")
    if refused := after.counters.refused - before.counters.refused:
        parts.append(f"{refused} refused")
    return ", ".join(parts)
