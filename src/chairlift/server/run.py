"""Runs the application on uvicorn, and lets it go gracefully.

On SIGTERM or Ctrl-C, in this order: new requests get 503 (the socket stays open for that); what is in progress goes on;
when all is answered, or drain_timeout is over, or a second signal comes, what is left ends with an error after the step
in flight, and the server closes its socket and ends. A third signal ends the process where it stands.
"""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from chairlift.core.errors import ConfigError
from chairlift.server.app import create_app
from chairlift.server.config import ServerConfig
from chairlift.server.service import Service

logger = logging.getLogger("chairlift.server")

_LOOK_EVERY = 0.05
"""Seconds between looks at whether a drain is over."""
_PATIENT_SIGNALS = 2
_LAST_WORDS = 5
"""Seconds that clients get to read the end of their answers."""


def bind(config: ServerConfig) -> socket.socket:
    """Take the address before a model is loaded for it. Connections are refused until the server listens.

    Raises:
        ConfigError: the address cannot be had.
    """
    try:
        found = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"--host {config.host} cannot be listened on: {error}.") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"--host {config.host} --port {config.port} cannot be had: {error.strerror}. "
            "Choose another --port, or 0 for any free one."
        ) from error
    return listener


def url(listener: socket.socket) -> str:
    """Where clients find a bound socket."""
    host, port = listener.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - read, not bound
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn, with a drain before its shutdown.

    Args:
        service: what is served.
        started: called once requests are taken.
    """

    def __init__(self, service: Service, started: Callable[[], None] = lambda: None) -> None:
        super().__init__(
            uvicorn.Config(
                create_app(service),
                loop="uvloop",
                http="httptools",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_LAST_WORDS,
            )
        )
        self._service = service
        self._on_start = started
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._signals = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn, and tell who waits for it."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal handler's signature
        """A signal: drain; a second one: hurry; a third one: a device that hangs must not keep the process."""
        self._signals += 1
        if self._signals > _PATIENT_SIGNALS:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_drain)
        else:
            self.should_exit = True

    def _begin_drain(self) -> None:
        if self._drain is None:
            self._drain = asyncio.ensure_future(self._drain_and_exit())
        else:
            self._hurry.set()

    async def _drain_and_exit(self) -> None:
        service, engine = self._service, self._service.engine
        service.draining = True
        engine.core.drain()
        engine.wake()
        bound = service.config.drain_timeout / 1e9
        usage = engine.stats().usage
        logger.info(
            "shutting down: %d running and %d waiting requests have %gs to end; a second signal ends them now.",
            usage.running,
            usage.waiting,
            bound,
        )
        if not await self._idle(bound):
            usage = engine.stats().usage
            logger.warning("%d requests end unanswered.", usage.running + usage.waiting)
            await engine.close()
        self.should_exit = True

    async def _idle(self, seconds: float) -> bool:
        """Whether all is answered within so many seconds and before a second signal."""
        for _ in range(math.ceil(seconds / _LOOK_EVERY)):
            if not self._service.engine.core.has_work or self._hurry.is_set():
                break
            await asyncio.sleep(_LOOK_EVERY)
        return not self._service.engine.core.has_work
