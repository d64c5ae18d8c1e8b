"""The engine for asyncio: the step loop in a thread of its own, answers as async iterators.

The thread hands over a whole step's pieces in one call to the event loop. A reader that is slow finds everything since
its last look joined into one piece: its memory is bounded by its answer, and the step loop never waits for it.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from chairlift.core.config import KVCapacity, PolicyName, SchedulerConfig
from chairlift.core.request import Nanoseconds, TokenId
from chairlift.core.status import Health
from chairlift.engine.core import EngineCore, EngineStats
from chairlift.engine.loop import StepThread
from chairlift.engine.observe import Observer
from chairlift.engine.outputs import OutputDelta
from chairlift.engine.params import SamplingParams
from chairlift.text.tokenizer import Tokenizer


class _Mailbox:
    """Pieces of one answer, joined until they are read. Used on its event loop only."""

    __slots__ = ("delta", "waiter")

    def __init__(self) -> None:
        self.delta: OutputDelta | None = None
        self.waiter: asyncio.Future[None] | None = None

    def put(self, delta: OutputDelta) -> None:
        self.delta = delta if self.delta is None else self.delta.joined(delta)
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class _Courier:
    """Carries pieces from the step thread to one event loop, a step's worth at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pieces: list[tuple[_Mailbox, OutputDelta]] = []

    def add(self, mailbox: _Mailbox, delta: OutputDelta) -> None:
        self._pieces.append((mailbox, delta))

    def flush(self) -> None:
        """Called on the step thread after each step."""
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            try:
                self._loop.call_soon_threadsafe(_drop_in, pieces)
            except RuntimeError:  # the loop was closed, and its readers with it
                pieces.clear()


def _drop_in(pieces: Iterable[tuple[_Mailbox, OutputDelta]]) -> None:
    for mailbox, delta in pieces:
        mailbox.put(delta)


class RequestStream:
    """One answer as it comes: `async for delta in stream`. The last delta has a finish_reason.

    Whoever stops reading need not say so: when the reading task is cancelled, or the stream is closed or dropped, the
    request is cancelled and its KV blocks are free at the end of the step in flight.
    """

    def __init__(self, request_id: str, mailbox: _Mailbox, abandon: Callable[[], None], max_tokens: int) -> None:
        self.request_id = request_id
        self.max_tokens = max_tokens
        """What may be generated at most, with max_model_len and the pool taken into account."""
        self._mailbox = mailbox
        self._finished = False
        # Not engine.cancel: a collector may run this in any thread, at any moment.
        self._abandon = weakref.finalize(self, abandon)
        self._abandon.atexit = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> OutputDelta:
        if self._finished:
            raise StopAsyncIteration
        mailbox = self._mailbox
        if mailbox.delta is None:
            mailbox.waiter = asyncio.get_running_loop().create_future()
            try:
                await mailbox.waiter
            except asyncio.CancelledError:
                self.cancel()
                raise
            finally:
                mailbox.waiter = None
        delta, mailbox.delta = mailbox.delta, None
        if delta is None:
            raise StopAsyncIteration
        if delta.finish_reason is not None:
            self._finished = True
            self._abandon.detach()
        return delta

    def cancel(self) -> None:
        """The answer is not wanted any more. The stream ends with finish reason cancelled, unless it had ended."""
        self._abandon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    async def aclose(self) -> None:
        """Cancel unless ended."""
        self.cancel()


class AsyncEngine:
    """Many readers, one step loop.

    Args:
        core: the engine; nobody else may call its step().
    """

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self._thread = StepThread(core)
        self._couriers: dict[asyncio.AbstractEventLoop, _Courier] = {}

    @property
    def config(self) -> SchedulerConfig:
        return self.core.config

    @property
    def capacity(self) -> KVCapacity:
        return self.core.capacity

    @property
    def tokenizer(self) -> Tokenizer:
        return self.core.tokenizer

    @property
    def running(self) -> bool:
        """Whether the step loop runs."""
        return self._thread.running

    def start(self) -> None:
        """Start the step loop."""
        self._thread.start()

    def submit(
        self,
        prompt_token_ids: Sequence[TokenId],
        params: SamplingParams,
        *,
        request_id: str,
        priority: int = 0,
        cache_salt: str = "",
        arrival: Nanoseconds | None = None,
    ) -> RequestStream:
        """Take in a request and return its answer as a stream. Call it on the event loop that will read it.

        Raises:
            RequestRefused: with the numbers and the setting to change.
            EngineClosed: the engine was shut down, or is being.
            EngineUnhealthy: the device broke down.
        """
        mailbox = _Mailbox()
        sink = partial(self._courier().add, mailbox)
        accepted = self.core.submit(
            prompt_token_ids,
            params,
            request_id=request_id,
            sink=sink,
            priority=priority,
            cache_salt=cache_salt,
            arrival=arrival,
        )
        self._thread.wake()
        abandon = partial(self._thread.abandon, request_id, sink)
        return RequestStream(request_id, mailbox, abandon, accepted.max_tokens)

    def cancel(self, request_id: str) -> None:
        """See EngineCore.cancel."""
        self.core.cancel(request_id)
        self._thread.wake()

    def switch_policy(self, policy: PolicyName, **changes: Any) -> None:
        """See EngineCore.switch_policy."""
        self.core.switch_policy(policy, **changes)
        self._thread.wake()

    def stats(self) -> EngineStats:
        return self.core.stats()

    def health(self) -> Health:
        """The core's health; red also when the step loop has ended unasked."""
        return self._thread.health()

    def attach(self, observer: Observer) -> None:
        self.core.attach(observer)

    def detach(self, observer: Observer) -> None:
        self.core.detach(observer)

    def wake(self) -> None:
        """Something was submitted to the core directly: look again. Any thread."""
        self._thread.wake()

    def stop(self, *, drain: bool = False) -> None:
        """Shut down and free the device; returns when that is done. Stopping again does nothing.

        Args:
            drain: answer whoever is here first (nobody else is taken in); otherwise they end as cancelled.
        """
        self._thread.stop(drain=drain)

    async def close(self, *, drain: bool = False) -> None:
        """stop(), while the event loop goes on, so that readers get their last pieces."""
        await asyncio.to_thread(self.stop, drain=drain)

    def _courier(self) -> _Courier:
        loop = asyncio.get_running_loop()
        courier = self._couriers.get(loop)
        if courier is None:
            self._couriers = {open_loop: one for open_loop, one in self._couriers.items() if not open_loop.is_closed()}
            courier = self._couriers[loop] = _Courier(loop)
            self._thread.after_step = tuple(one.flush for one in self._couriers.values())
        return courier
