"""A model in this process: the engine without HTTP, observed like a server."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Self

from chairlift import __version__
from chairlift.core.errors import EngineError, RequestError, RequestRefused
from chairlift.core.reasons import Reason
from chairlift.core.request import FinishReason, TokenId
from chairlift.devices.model import DeviceModel
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.config import EngineConfig
from chairlift.engine.core import EngineCore, EngineStats
from chairlift.engine.loader import load_model
from chairlift.engine.outputs import OutputDelta
from chairlift.engine.params import SamplingParams
from chairlift.engine.recording import results
from chairlift.lab.client.clock import Clock, RunClock
from chairlift.lab.client.deltas import Delta
from chairlift.lab.client.devices import local_devices
from chairlift.lab.client.driver import Driver
from chairlift.lab.client.options import Answer, RunOptions, Stop
from chairlift.lab.client.stopwatch import Stopwatch
from chairlift.lab.loads.request import ScheduledRequest
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.targets.base import TargetInfo
from chairlift.lab.targets.prompting import TokenIdPrompts
from chairlift.records.client import ErrorClass, Observation, ServerSample
from chairlift.records.manifest import Manifest, plain
from chairlift.records.writer import RunWriter

_GREEDY: Final = SamplingParams(temperature=0)


class ModelTarget:
    """An engine. It is started by open() and closed by close().

    When the schedule has nothing further to send, the engine is told that its input has ended, so that an unfilled
    batch leaves; it stays told, so a later run over the same engine does not wait for batches to fill.

    Args:
        engine: not started yet, or running.
        name: the model's, for people.
        params: how tokens are sampled; lengths come from the schedule.
        end_input: tell the engine that its input has ended.
        clock: makes the clock of each run.

    Attributes:
        device: a device model of the machine it runs on, where there is one. See KeepsRecords.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        name: str,
        *,
        params: SamplingParams = _GREEDY,
        end_input: bool = True,
        clock: Callable[[], Clock] = RunClock,
    ) -> None:
        self.engine = engine
        self._name = name
        self._params = params
        self._end_input = end_input
        self._clock = clock
        self._runs = itertools.count()
        self.device: DeviceModel | None = None

    @classmethod
    def load(cls, model: str, settings: Mapping[str, Any] | None = None) -> Self:
        """A model with an engine of its own.

        Args:
            model: see EngineConfig.model.
            settings: any field of EngineConfig, RunnerSettings or SchedulerConfig by name.

        Raises:
            ConfigError, ModelError, OutOfDeviceMemory: as load_model.
        """
        loaded = load_model(EngineConfig.of(model, settings or {}))
        return cls(
            AsyncEngine(EngineCore(loaded.scheduler, loaded.runner, loaded.tokenizer, loaded.sampler)), loaded.name
        )

    async def open(self) -> TargetInfo:
        """See Target.open."""
        if not self.engine.running:
            self.engine.start()
        config = self.engine.config
        return TargetInfo(
            kind="model",
            name=self._name,
            model=self._name,
            version=__version__,
            prompts="token ids, exactly as long as asked",
            max_model_len=config.max_model_len,
            notes=("the engine runs in the client's process: its threads share the interpreter with the client's.",),
            details={"policy": config.policy},
        )

    async def run(
        self, schedule: Schedule, options: RunOptions | None = None, stop: Stop | None = None
    ) -> AsyncGenerator[Observation, None]:
        """See Target.run."""
        options = options or RunOptions()
        clock = self._clock()
        writer = TokenIdPrompts(schedule.load, self.engine.tokenizer, options.salt)
        sender = _EngineSender(self, writer, clock, f"run{next(self._runs)}")
        async with aclosing(Driver(sender, schedule, clock, options, stop, local_devices()).run()) as observations:
            async for observation in observations:
                yield observation

    @asynccontextmanager
    async def records(self, folder: Path, client: Manifest) -> AsyncIterator[None]:
        """See KeepsRecords.records."""
        engine = self.engine
        writer = RunWriter(
            folder,
            replace(
                client,
                source="engine",
                client_schema=None,
                clock_zero=time.time() - engine.core.now() / 1e9,
                settings=plain(asdict(engine.config)),
                capacity=asdict(engine.capacity),
                definitions={},
            ),
        )
        engine.attach(writer)
        try:
            yield
        finally:
            await self.close()
            engine.detach(writer)
            writer.close(results=results(engine.stats()))

    async def close(self) -> None:
        """Shut the engine down."""
        await self.engine.close()

    def params(self, request: ScheduledRequest) -> SamplingParams:
        """How a request is answered."""
        return replace(self._params, max_tokens=request.max_tokens, ignore_eos=request.ignore_eos)

    def end_input(self) -> None:
        """Nothing further will come."""
        if self._end_input:
            self.engine.core.end_input()
            self.engine.wake()


class _EngineSender:
    """A Sender over an engine."""

    def __init__(self, target: ModelTarget, writer: TokenIdPrompts, clock: Clock, prefix: str) -> None:
        self._target = target
        self._engine = target.engine
        self._writer = writer
        self._clock = clock
        self._prefix = prefix
        self._ahead: int | None = None
        """By how much the engine's clock is ahead of the client's: taken once, so that requests that are due together
        arrive together, and keep their order."""

    def prepare(self, request: ScheduledRequest, answers: Mapping[int, Answer]) -> list[TokenId]:
        return self._writer(request, answers)

    async def send(self, request: ScheduledRequest, prepared: list[TokenId], watch: Stopwatch) -> None:
        # The engine's own records count from the same moment as the client's, lateness included.
        if self._ahead is None:
            self._ahead = self._engine.core.now() - self._clock.now()
        try:
            stream = self._engine.submit(
                prepared,
                self._target.params(request),
                request_id=f"{self._prefix}-{request.index}",
                priority=request.priority,
                arrival=watch.scheduled + self._ahead,
            )
        except RequestRefused as error:
            full = error.refused.reason is Reason.QUEUE_FULL
            watch.fail(ErrorClass.OVERLOADED if full else ErrorClass.REJECTED, str(error))
            return
        except RequestError as error:
            watch.fail(ErrorClass.REJECTED, str(error))
            return
        except EngineError as error:
            watch.fail(ErrorClass.SERVER, str(error))
            return
        watch.written = watch.last_activity = self._clock.now()
        async with stream:
            async for delta in stream:
                watch.event(_read(delta), self._clock.now())
        watch.ended = watch.last_activity

    async def sample(self, *, complete: bool) -> ServerSample | None:  # noqa: ARG002 - there is nothing further
        return _sample(self._engine.stats())

    def exhausted(self) -> None:
        self._target.end_input()


def _read(delta: OutputDelta) -> Delta:
    error = None
    if delta.finish_reason is FinishReason.ERROR:
        error = delta.error or "the engine failed on it"
    elif delta.finish_reason is FinishReason.CANCELLED:
        error = "the engine cancelled it"
    return Delta(
        choices=True,
        content=bool(delta.text or delta.token_ids),
        text=delta.text,
        token_ids=delta.token_ids,
        prompt_tokens=delta.prompt_tokens,
        cached_tokens=delta.cached_tokens,
        output_tokens=delta.output_tokens,
        finish_reason=None if delta.finish_reason is None else str(delta.finish_reason),
        error=error,
    )


def _sample(stats: EngineStats) -> ServerSample:
    usage, counters = stats.usage, stats.counters
    answered = (FinishReason.STOP, FinishReason.LENGTH)
    return ServerSample(
        time=0,
        took=0,
        running=usage.running,
        waiting=usage.waiting,
        kv_usage=usage.kv_used / usage.kv_blocks,
        prompt_tokens=counters.prompt_tokens,
        output_tokens=counters.output_tokens,
        requests=sum(count for reason, count in counters.finished.items() if reason in answered),
        preemptions=counters.preemptions,
        prefix_queries=counters.prefix_queries,
        prefix_hits=counters.prefix_hits,
        error="" if stats.health.ok else stats.health.cause,
    )
