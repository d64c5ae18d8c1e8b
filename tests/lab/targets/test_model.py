import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from chairlift.core.config import SchedulerConfig
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.core import EngineCore
from chairlift.engine.observe import Observer
from chairlift.lab.client.options import RunOptions, Stop
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.targets.model import ModelTarget
from chairlift.records.client import ErrorClass, Observation, RequestTrace, ServerSample, TokenSource
from chairlift.records.schema import RequestRecord
from chairlift.runners.fake import FakeRunner
from tests.engine.tiny import byte_tokenizer
from tests.lab.client.harness import until
from tests.server.harness import GatedRunner

SIX = "arrivals=constant arrivals.rate=200 count=6 prompt=40 output=5"


class Watcher(Observer):
    """Keeps the engine's own record of each request."""

    def __init__(self) -> None:
        self.requests: dict[str, RequestRecord] = {}

    def on_request(self, record: RequestRecord) -> None:
        self.requests[record.request_id] = record


class Case:
    """A model in this process, over a fake runner."""

    def __init__(self, runner: FakeRunner | None = None, **settings: Any) -> None:
        self.runner = runner or FakeRunner(vocabulary=128, num_blocks=256)
        config = SchedulerConfig(**{"max_model_len": 512, **settings})
        self.engine = AsyncEngine(EngineCore(config, self.runner, byte_tokenizer()))
        self.watcher = Watcher()
        self.engine.attach(self.watcher)
        self.target = ModelTarget(self.engine, "fake")

    async def run(self, pairs: str, options: RunOptions | None = None, stop: Stop | None = None) -> list[Observation]:
        """Open, run, close."""
        await self.target.open()
        try:
            schedule = Schedule(load_from_pairs(pairs.split()))
            async with aclosing(self.target.run(schedule, options, stop)) as observations:
                return [observation async for observation in observations]
        finally:
            await self.target.close()


def traces_of(observations: list[Observation]) -> list[RequestTrace]:
    """In the order of the schedule."""
    return sorted((one for one in observations if isinstance(one, RequestTrace)), key=lambda trace: trace.index)


async def test_traces_are_those_of_a_server_without_its_http() -> None:
    """Lengths as asked, tokens counted by their ids, no status and no bytes."""
    traces = traces_of(await Case().run(SIX))

    assert {(trace.error, trace.prompt_tokens, trace.output_tokens) for trace in traces} == {(None, 40, 5)}
    assert {chunk.source for trace in traces for chunk in trace.chunks} == {TokenSource.TOKEN_IDS}
    assert [sum(chunk.tokens or 0 for chunk in trace.chunks) for trace in traces] == [5] * 6
    assert {(trace.status, trace.first_byte, trace.connection_reused) for trace in traces} == {(None, None, None)}


async def test_the_engines_own_records_count_from_when_a_request_was_due() -> None:
    """Its arrival is the client's `scheduled`, so both clocks measure the same latency; to the nanosecond, so that
    those who are due together keep their order.
    """
    case = Case()
    traces = traces_of(await case.run(SIX))

    arrivals = [case.watcher.requests[f"run0-{trace.index}"].arrival for trace in traces]
    offsets = [arrival - trace.scheduled for arrival, trace in zip(arrivals, traces, strict=True)]
    assert len(set(offsets)) == 1


async def test_samples_are_the_engines_statistics() -> None:
    """At both ends, exactly."""
    samples = [one for one in await Case().run(SIX) if isinstance(one, ServerSample)]

    assert (samples[0].output_tokens, samples[-1].prompt_tokens, samples[-1].output_tokens) == (0, 240, 30)
    assert (samples[-1].requests, samples[-1].running, samples[-1].kv_usage) == (6, 0, 0)


@pytest.mark.parametrize("policy", ["static", "dynamic", "continuous"])
async def test_an_unfilled_batch_leaves_when_nothing_further_comes(policy: str) -> None:
    """Six requests in batches of four: the last two do not wait for ever."""
    traces = traces_of(await Case(policy=policy, batch_size=4, max_queue_delay=10**12).run(SIX))

    assert [trace.ok for trace in traces] == [True] * 6


async def test_results_that_leave_together_are_one_chunk() -> None:
    """A batch that is released as a whole: time between tokens cannot be seen from outside, and is not made up."""
    traces = traces_of(await Case(policy="static", batch_size=6, release="batch").run(SIX))

    assert [[chunk.tokens for chunk in trace.chunks] for trace in traces] == [[5]] * 6


async def test_a_refusal_is_recorded() -> None:
    """A full queue, and a request that can never fit, each by its class."""
    runner = GatedRunner()
    case = Case(runner, max_num_seqs=1, max_queued_requests=1)
    task = asyncio.create_task(case.run(SIX))
    await until(lambda: case.engine.stats().counters.refused >= 4)
    runner.open()
    traces = traces_of(await task)
    too_long = traces_of(await Case(max_model_len=30).run("arrivals=burst arrivals.size=1 prompt=40 output=5"))

    assert {trace.error for trace in traces} == {None, ErrorClass.OVERLOADED}
    assert [trace.error for trace in too_long] == [ErrorClass.REJECTED]
    assert "--max-model-len" in too_long[0].error_message


async def test_a_stop_cancels_in_the_engine() -> None:
    """What is cut is freed."""
    runner, stop = GatedRunner(num_blocks=256), Stop()
    case = Case(runner)
    task = asyncio.create_task(case.run("arrivals=burst arrivals.size=3 prompt=40 output=400", stop=stop))
    await until(lambda: case.engine.stats().counters.accepted == 3)
    stop.request()
    runner.open()
    traces = traces_of(await task)

    assert {trace.error for trace in traces} == {ErrorClass.CUT}
    assert {record.finish_reason for record in case.watcher.requests.values()} == {"cancelled"}


async def test_a_failure_of_the_device_is_recorded_with_its_words() -> None:
    """One request's, and the others are answered."""
    runner = FakeRunner(vocabulary=128, num_blocks=256)
    runner.failing["run0-2"] = "bad block"
    traces = traces_of(await Case(runner).run(SIX))

    assert [trace.error for trace in traces] == [None, None, ErrorClass.IN_STREAM, None, None, None]
    assert "bad block" in traces[2].error_message


async def test_texts_and_tokens_are_kept_on_request() -> None:
    """To compare answers across policies."""
    both = [
        traces_of(await Case(policy=policy).run(SIX, RunOptions(keep_text=True))) for policy in ("static", "dynamic")
    ]

    assert [trace.token_ids for trace in both[0]] == [trace.token_ids for trace in both[1]]
    assert all(trace.text and len(trace.token_ids or ()) == 5 for trace in both[0])
