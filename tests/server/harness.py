"""A server on a free port, in a thread, over a fake runner whose steps the test lets happen one by one."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, Self

import httpx

from chairlift.core.config import SchedulerConfig
from chairlift.core.plan import StepOutcome, StepPlan
from chairlift.engine.answer import Sink
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.core import EngineCore, EngineStats
from chairlift.records.observer import Observer
from chairlift.records.schema import RequestRecord
from chairlift.runners.fake import FakeRunner
from chairlift.server.config import ServerConfig
from chairlift.server.run import Server, bind, url
from chairlift.server.service import Service
from chairlift.text.chat import ChatTemplate
from tests.engine.tiny import byte_tokenizer

PATIENCE = 30.0
"""Seconds after which a test that waits gives up. Never what decides whether it passes."""

TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def wait_until(condition: Callable[[], object]) -> None:
    """Look again and again until it holds; give up after PATIENCE."""
    pause, end = threading.Event(), time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came to hold"
        pause.wait(0.001)


class GatedRunner(FakeRunner):
    """Steps happen only as allowed. Tokens are ASCII, so that each has a text of its own."""

    def __init__(self, *, num_blocks: int = 64, block_size: int = 16) -> None:
        super().__init__(num_blocks=num_blocks, block_size=block_size, vocabulary=128)
        self._begun: SimpleQueue[int] = SimpleQueue()
        self._permits = threading.Semaphore(0)
        self._open = threading.Event()

    def execute(self, plan: StepPlan) -> StepOutcome:
        self._begun.put(plan.step)
        if not self._open.is_set():
            self._permits.acquire()
        return super().execute(plan)

    def open(self) -> None:
        """Let every step happen from now on."""
        self._open.set()
        self._permits.release()

    def allow(self, steps: int = 1) -> None:
        """Let so many steps happen."""
        self._permits.release(steps)

    def await_step(self) -> int:
        """Wait until the next step is in flight; its number."""
        return self._begun.get(timeout=PATIENCE)


class Departures(Observer):
    """Hands over the record of each request that left."""

    def __init__(self) -> None:
        self._records: SimpleQueue[RequestRecord] = SimpleQueue()

    def on_request(self, record: RequestRecord) -> None:
        self._records.put(record)

    def next(self) -> RequestRecord:
        """Wait for the next one."""
        return self._records.get(timeout=PATIENCE)


class LiveServer:
    """A running server.

    Args:
        config: the scheduler's settings.
        server: the server's own; the port is chosen by the system.
        runner: default: one whose gate is open.
        with_template: whether the model has a chat template.
    """

    def __init__(
        self,
        config: SchedulerConfig | None = None,
        server: ServerConfig | None = None,
        runner: GatedRunner | None = None,
        *,
        with_template: bool = True,
    ) -> None:
        self.runner = runner or GatedRunner()
        if runner is None:
            self.runner.open()
        tokenizer = byte_tokenizer()
        self.engine = AsyncEngine(EngineCore(config or SchedulerConfig(), self.runner, tokenizer))
        self.departures = Departures()
        self.engine.attach(self.departures)
        self._abandoned: SimpleQueue[str] = SimpleQueue()
        self._watch_abandon()
        template = ChatTemplate(TEMPLATE, tokenizer, source="test") if with_template else None
        settings = server or ServerConfig(port=0)
        self.service = Service(self.engine, model="fake", template=template, config=settings)
        self._listener = bind(settings)
        self._started = threading.Event()
        self._signals = 0
        self.server = Server(self.service, self._started.set)
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self._listener]}, daemon=True)
        self.url = url(self._listener)
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.open()
        self.http.close()
        while self._signals < 2:
            self.signal()
        self.join()

    def signal(self) -> None:
        """As if the process had been sent SIGTERM."""
        self._signals += 1
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self.server.handle_exit(signal.SIGTERM, None)

    def join(self) -> None:
        """Wait for the server's end."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def stats(self) -> EngineStats:
        return self.engine.stats()

    def await_abandoned(self) -> str:
        """Wait until the server has given a request up; its id."""
        return self._abandoned.get(timeout=PATIENCE)

    def post(self, path: str, body: object, **options: Any) -> httpx.Response:
        return self.http.post(path, json=body, **options)

    def complete(self, **body: Any) -> httpx.Response:
        """POST /v1/completions."""
        return self.post("/v1/completions", {"prompt": "Hello", "temperature": 0, **body})

    def chat(self, **body: Any) -> httpx.Response:
        """POST /v1/chat/completions."""
        return self.post(
            "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, **body}
        )

    @contextlib.contextmanager
    def raw(self, path: str, body: object, *, cut: int = 0) -> Iterator[socket.socket]:
        """A request on a socket of its own, to be left at will; nothing is read. `cut` bytes of it are not sent."""
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {len(data)}\r\n\r\n"
        with socket.create_connection(self._listener.getsockname()[:2], timeout=PATIENCE) as connection:
            connection.sendall(head.encode() + data[: len(data) - cut])
            yield connection

    def _watch_abandon(self) -> None:
        """Tell when the server gives a request up."""
        steps = self.engine._thread
        abandon = steps.abandon

        def watched(request_id: str, sink: Sink) -> None:
            abandon(request_id, sink)
            self._abandoned.put(request_id)

        steps.abandon = watched  # type: ignore[method-assign]


def events(response: httpx.Response) -> list[Any]:
    """The data of a whole event stream; the last is "[DONE]"."""
    parts = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert parts[-1] == "[DONE]"
    return [json.loads(part) for part in parts[:-1]]
