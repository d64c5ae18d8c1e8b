import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from chairlift.core.errors import EngineClosed, RequestRefused
from chairlift.core.plan import StepOutcome, StepPlan
from chairlift.core.request import FinishReason
from chairlift.engine.async_engine import AsyncEngine, RequestStream
from chairlift.engine.outputs import OutputDelta
from chairlift.engine.params import SamplingParams
from chairlift.runners.fake import FakeRunner
from tests.engine.tiny import GatedRunner, Witness, make_core

LENGTH, CANCELLED = FinishReason.LENGTH, FinishReason.CANCELLED
PROMPT = list(b"hello")


@asynccontextmanager
async def engine_on(runner: FakeRunner, **settings: Any) -> AsyncIterator[AsyncEngine]:
    """A running engine, closed at the end."""
    engine = AsyncEngine(make_core(runner, **settings))
    engine.start()
    try:
        yield engine
    finally:
        if isinstance(runner, GatedRunner):
            runner.open()
        await engine.close()


def begin(engine: AsyncEngine, request_id: str, max_tokens: int) -> RequestStream:
    """Submit a prompt of five tokens."""
    return engine.submit(PROMPT, SamplingParams(max_tokens=max_tokens), request_id=request_id)


async def read(stream: RequestStream) -> list[OutputDelta]:
    """Every piece up to the end."""
    return [delta async for delta in stream]


async def test_streams_read_side_by_side() -> None:
    """Each stream gets its own answer to the end, whoever else is read."""
    async with engine_on(FakeRunner(vocabulary=128)) as engine:
        streams = [begin(engine, f"r{n}", 5 + n) for n in range(20)]
        answers = await asyncio.gather(*map(read, streams))

    for n, deltas in enumerate(answers):
        assert {delta.request_id for delta in deltas} == {f"r{n}"}
        assert sum(len(delta.token_ids) for delta in deltas) == 5 + n
        assert [delta.finish_reason for delta in deltas] == [None] * (len(deltas) - 1) + [LENGTH]


async def test_an_ended_stream_stays_ended() -> None:
    """Reading on after the end is the end again, not a wait."""
    async with engine_on(FakeRunner(vocabulary=128)) as engine:
        stream = begin(engine, "a", 3)
        await read(stream)

        assert await read(stream) == []


async def test_tokens_stream_as_they_are_computed() -> None:
    """With one step allowed at a time, each piece is there before the next step happens."""
    runner = GatedRunner()
    async with engine_on(runner) as engine:
        stream = begin(engine, "a", 3)
        counts = []
        for _ in range(3):
            runner.allow(1)
            counts.append((await anext(stream)).output_tokens)

    assert counts == [1, 2, 3]


async def test_a_slow_reader_finds_everything_in_one_piece() -> None:
    """The step loop never waits for a reader, and what it missed is joined, not queued."""
    async with engine_on(FakeRunner(vocabulary=128)) as engine:
        slow, other = begin(engine, "slow", 50), begin(engine, "other", 200)
        await read(other)

        (piece,) = await read(slow)

    assert (len(piece.token_ids), piece.output_tokens, piece.finish_reason) == (50, 50, LENGTH)


@pytest.mark.parametrize("state", ["running", "queued"])
@pytest.mark.parametrize("how", ["task cancelled", "dropped", "closed", "left", "told"])
async def test_a_reader_that_goes_away_frees_its_blocks(state: str, how: str) -> None:
    """T10: however the reader leaves, running or queued, the request is cancelled at the end of the step in flight."""
    runner, witness = GatedRunner(), Witness()
    async with engine_on(runner, max_num_seqs=1 if state == "queued" else 8, observers=[witness]) as engine:
        first = begin(engine, "first", 40)
        leaving: RequestStream | None = begin(engine, "leaves", 400)
        assert leaving is not None
        runner.allow(1)
        await anext(first)
        if how == "task cancelled":
            if state == "running":
                await anext(leaving)
            task = asyncio.create_task(read(leaving))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        elif how == "closed":
            await leaving.aclose()
        elif how == "left":
            async with leaving:
                pass
        elif how == "told":
            leaving.cancel()
        leaving = None
        gc.collect()
        runner.open()
        await read(first)
        await engine.close(drain=True)
        stats = engine.stats()

    assert witness.requests["leaves"].finish_reason is CANCELLED
    assert witness.requests["leaves"].output_tokens <= 3
    assert stats.usage.kv_used == 0
    assert (stats.counters.finished[CANCELLED], stats.counters.finished[LENGTH]) == (1, 1)


async def test_a_late_goodbye_does_not_reach_a_namesake() -> None:
    """A stream whose end was never read is dropped when another request bears its id already: that one goes on."""
    async with engine_on(FakeRunner(vocabulary=128)) as engine:
        first = begin(engine, "a", 2)
        await read(begin(engine, "other", 20))  # by then the first has ended, unread

        second = begin(engine, "a", 30)
        del first
        gc.collect()

        assert (await read(second))[-1].finish_reason is LENGTH


async def test_cancelling_ends_the_stream_with_that_reason() -> None:
    """Whoever cancels and reads on learns that it was cancelled."""
    runner = GatedRunner()
    async with engine_on(runner) as engine:
        stream = begin(engine, "a", 100)
        runner.allow(1)
        await anext(stream)
        stream.cancel()
        runner.open()

        rest = await read(stream)

    assert rest[-1].finish_reason is CANCELLED


async def test_a_refusal_is_raised_at_the_door() -> None:
    """Submitting answers at once, also while a step is running."""
    runner = GatedRunner(num_blocks=4)
    async with engine_on(runner) as engine:
        begin(engine, "a", 5)
        with pytest.raises(RequestRefused, match="--num-kv-blocks"):
            begin(engine, "b", 400)


async def test_draining_answers_whoever_is_here() -> None:
    """close(drain=True) comes back when the last answer has left; nobody new is taken in meanwhile."""
    runner = GatedRunner()
    async with engine_on(runner) as engine:
        stream = begin(engine, "a", 30)
        closing = asyncio.create_task(engine.close(drain=True))
        while True:
            try:
                begin(engine, "late", 1)
            except EngineClosed:
                break
            await asyncio.sleep(0)
        runner.open()
        await closing

        assert sum(len(delta.token_ids) for delta in await read(stream)) == 30
        assert not engine.running


async def test_closing_without_draining_ends_streams_as_cancelled() -> None:
    """Nobody waits for ever on a stream whose engine is gone."""
    runner = GatedRunner()
    async with engine_on(runner) as engine:
        stream = begin(engine, "a", 100)
        runner.allow(1)
        await anext(stream)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        runner.open()
        await closing

        assert (await read(stream))[-1].finish_reason is CANCELLED
        assert runner.closed


async def test_an_engine_that_never_started_can_be_closed() -> None:
    """Its waiting requests end as cancelled, and it is not healthy before it runs."""
    engine = AsyncEngine(make_core())
    stream = begin(engine, "a", 5)
    assert not engine.health().ok

    await engine.close()

    assert [delta.finish_reason for delta in await read(stream)] == [CANCELLED]


class PoisonedRunner(FakeRunner):
    """Raises what no engine can mend."""

    def execute(self, plan: StepPlan) -> StepOutcome:
        raise MemoryError("no more")


async def test_a_broken_device_ends_every_stream() -> None:
    """Readers get the error, and health says why."""
    async with engine_on(PoisonedRunner()) as engine:
        answers = await asyncio.gather(*(read(begin(engine, name, 5)) for name in "ab"))
        health = engine.health()

    for deltas in answers:
        assert deltas[-1].finish_reason is FinishReason.ERROR
        assert "MemoryError: no more" in deltas[-1].error
    assert not health.ok
    assert "no more" in health.cause


def test_a_reader_whose_event_loop_is_gone_harms_nobody() -> None:
    """Its pieces have nowhere to go; others, on another loop, are answered."""
    runner = GatedRunner()
    engine = AsyncEngine(make_core(runner))
    engine.start()

    async def leave() -> None:
        begin(engine, "orphan", 20)

    async def stay() -> list[OutputDelta]:
        stream = begin(engine, "other", 20)
        runner.open()
        return await read(stream)

    asyncio.run(leave())
    answer = asyncio.run(stay())
    engine.stop(drain=True)

    assert answer[-1].finish_reason is LENGTH
    assert engine.stats().usage.kv_used == 0
