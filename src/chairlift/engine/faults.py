"""What is wrong with the engine, if anything: steps that fail, work that cannot be scheduled, a device that is gone."""

from __future__ import annotations

import logging

from chairlift.core.errors import EngineClosed, EngineError, EngineUnhealthy, StepFailed
from chairlift.core.request import Nanoseconds
from chairlift.core.status import Health
from chairlift.engine.throttle import Throttle

logger = logging.getLogger("chairlift.engine")

MAX_ATTEMPTS = 3
"""How often in a row a step may fail before the requests in it end with an error."""


class Faults:
    """Keeps count, speaks in the log once a period, and answers for the engine's health."""

    def __init__(self) -> None:
        self._attempts = 0
        self._failing: Health | None = None
        """While steps fail."""
        self._broken: Health | None = None
        """The device is gone."""
        self._closed: EngineError | None = None
        """Why nobody is taken in any more."""
        self._throttle = Throttle()

    @property
    def broken(self) -> Health | None:
        """Set once the device broke down."""
        return self._broken

    def check_door(self) -> None:
        """Raises EngineClosed or EngineUnhealthy when nobody is taken in any more."""
        if self._closed is not None:
            raise type(self._closed)(str(self._closed))

    def close_door(self, message: str) -> None:
        """Nobody is taken in any more; an earlier reason stays."""
        self._closed = self._closed or EngineClosed(message)

    def step_failed(self, error: StepFailed, now: Nanoseconds) -> bool:
        """Count it. Returns whether the step is to be given up."""
        self._attempts += 1
        since = self._failing.since if self._failing else now
        self._failing = Health(ok=False, cause=f"steps fail: {error}", since=since)
        self._complain("step", f"a step failed ({self._attempts} of {MAX_ATTEMPTS} attempts): {error}", now)
        if self._attempts < MAX_ATTEMPTS:
            return False
        self._attempts = 0
        return True

    def step_succeeded(self) -> None:
        """Steps do not fail any more."""
        self._attempts = 0
        self._failing = None

    def idle(self) -> None:
        """Nothing is left to do: whether a step would fail is not known, and a red light would keep everybody away."""
        self._failing = None

    def stalled(self, detail: str, now: Nanoseconds) -> None:
        """Work is pending, and the scheduler cannot schedule it."""
        self._complain("stalled", f"work is pending and cannot be scheduled: {detail}", now)

    def break_down(self, error: Exception, now: Nanoseconds) -> str:
        """No step will follow. Returns the cause in words."""
        cause = f"the device broke down: {type(error).__name__}: {error}"
        self._closed = EngineUnhealthy(f"{cause}. Restart the server; its log has the traceback.")
        self._broken = Health(ok=False, cause=str(self._closed), since=now)
        logger.error("the device broke down; every request ends with an error.", exc_info=error)
        return cause

    def health(self, scheduler: Health) -> Health:
        """The worst that is known."""
        if self._broken is not None:
            return self._broken
        return scheduler if not scheduler.ok else self._failing or scheduler

    def _complain(self, kind: str, line: str, now: Nanoseconds) -> None:
        if self._throttle.speaks(kind, now):
            held_back = self._throttle.held_back(kind)
            logger.error("%s%s", line, f" ({held_back} more since the last such line)" if held_back else "")
