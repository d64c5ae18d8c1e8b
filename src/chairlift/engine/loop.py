"""The thread that steps an engine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from chairlift.core.plan import Wait
from chairlift.core.reasons import Reason
from chairlift.core.status import Health
from chairlift.engine.answer import Sink
from chairlift.engine.core import EngineCore

logger = logging.getLogger("chairlift.engine")

_RETRY_STALLED = 0.1
"""Seconds until an engine that cannot schedule its work tries again unasked."""


class StepThread:
    """Calls step() for as long as there is work, and sleeps while there is none.

    Args:
        core: the engine; nobody else may call its step() or close().
    """

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        # A SimpleQueue, because a garbage collector may call abandon() in the middle of anything: its put() may be
        # entered again, which no lock or event allows.
        self._bell: SimpleQueue[tuple[str, Sink] | None] = SimpleQueue()
        self._stop = False
        self._drain = False
        self._thread = threading.Thread(target=self._run, name="chairlift-steps", daemon=True)
        self.after_step: tuple[Callable[[], None], ...] = ()
        """Called on the thread after each step."""

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Something has changed: look again. Any thread."""
        self._bell.put(None)

    def abandon(self, request_id: str, sink: Sink) -> None:
        """The request submitted with this sink is not wanted any more: unless it has ended, it is cancelled before the
        next step. Safe in a finalizer.
        """
        self._bell.put((request_id, sink))

    def stop(self, *, drain: bool = False) -> None:
        """End the thread and the engine; returns when both have ended. Any other thread, any number of times.

        Args:
            drain: answer whoever is here first.
        """
        self._core.drain()
        self._drain = drain
        self._stop = True
        self.wake()
        if self._thread.ident is None:
            self._finish()
        else:
            self._thread.join()

    def health(self) -> Health:
        """The engine's; red also where the thread ended unasked or never began."""
        health = self._core.health()
        if health.ok and not self.running:
            return Health(ok=False, cause="the step loop does not run.")
        return health

    def _run(self) -> None:
        try:
            while not (self._stop and (not self._drain or not self._core.has_work)):
                wait = self._core.step()
                self._after_step()
                self._listen(0 if wait is None else self._seconds(wait))
        finally:
            self._finish()

    def _listen(self, seconds: float | None) -> None:
        """Wait for the bell for so long (None: until it rings), then take in every ring there is."""
        try:
            ring = self._bell.get(block=seconds != 0, timeout=seconds)
            while True:
                if ring is not None:
                    self._core.cancel(*ring)
                ring = self._bell.get_nowait()
        except Empty:
            return

    def _finish(self) -> None:
        self._core.close()
        self._after_step()

    def _after_step(self) -> None:
        for call in self.after_step:
            call()

    def _seconds(self, wait: Wait) -> float | None:
        if wait.reason is Reason.STALLED:
            return _RETRY_STALLED
        if wait.until is None:
            return None
        return max(0.0, (wait.until - self._core.now()) / 1e9)
