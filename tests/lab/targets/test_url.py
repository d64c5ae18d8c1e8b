import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ConfigError
from chairlift.lab.client.clock import SECOND
from chairlift.lab.client.options import RunOptions, Stop, TimeLimits
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.targets.base import Target
from chairlift.lab.targets.url import UrlSettings, UrlTarget
from chairlift.records.client import ErrorClass, HealthSample, Observation, RequestTrace, ServerSample, TokenSource
from chairlift.text.chat import ChatTemplate
from tests.engine.tiny import byte_tokenizer
from tests.lab.client.harness import ManualClock, ScriptedServer, paged_server, until
from tests.server.harness import TEMPLATE, GatedRunner, LiveServer

PAGES: dict[str, str | tuple[str, str]] = {"/v1/models": '{"data": [{"id": "m"}]}'}
SIX = "arrivals=constant arrivals.rate=200 count=6 prompt=40 output=5"


def schedule(pairs: str) -> Schedule:
    """Of key=value pairs in one text."""
    return Schedule(load_from_pairs(pairs.split()))


async def observe(
    target: Target, pairs: str, options: RunOptions | None = None, stop: Stop | None = None
) -> list[Observation]:
    """Run a load and collect everything."""
    async with aclosing(target.run(schedule(pairs), options, stop)) as observations:
        return [observation async for observation in observations]


def traces_of(observations: Sequence[Observation]) -> list[RequestTrace]:
    """In the order of the schedule."""
    return sorted((one for one in observations if isinstance(one, RequestTrace)), key=lambda trace: trace.index)


def samples_of(observations: Sequence[Observation]) -> list[ServerSample]:
    """In order of time."""
    return [one for one in observations if isinstance(one, ServerSample)]


@pytest.fixture(scope="module")
def live() -> Iterator[LiveServer]:
    """Our own server, over a fake model."""
    runner = GatedRunner(num_blocks=512)
    runner.open()
    with LiveServer(SchedulerConfig(max_model_len=2048), runner=runner) as server:
        yield server


async def run_live(
    server: LiveServer, pairs: str = SIX, *, tokenizer: bool = True, **settings: Any
) -> list[Observation]:
    """A load against our own server."""
    known = byte_tokenizer() if tokenizer else None
    template = None if known is None else ChatTemplate(TEMPLATE, known, source="test")
    target = UrlTarget(server.url, UrlSettings(**settings), tokenizer=known, template=template)
    await target.open()
    return await observe(target, pairs)


async def test_our_own_server_agrees_with_what_the_client_saw(live: LiveServer) -> None:
    """Six requests of 40 tokens and answers of 5: by the client's traces, the usage, and the server's counters."""
    observations = await run_live(live)
    traces, (first, *_, last) = traces_of(observations), samples_of(observations)

    assert [trace.error for trace in traces] == [None] * 6
    assert {(trace.prompt_tokens, trace.output_tokens, trace.finish_reason) for trace in traces} == {(40, 5, "length")}
    for name, total in (("prompt_tokens", 240), ("output_tokens", 30), ("requests", 6), ("ttft_count", 6)):
        assert getattr(last, name) - getattr(first, name) == total, name
    assert any(isinstance(one, HealthSample) for one in observations)


async def test_moments_come_in_their_order(live: LiveServer) -> None:
    """Scheduled, sent, written, headers, events, content, end."""
    for trace in traces_of(await run_live(live)):
        moments = [trace.scheduled, trace.sent, trace.written, trace.first_byte, trace.first_event, trace.first_content]
        moments += [*(chunk.time for chunk in trace.chunks), trace.last_content, trace.end]
        assert None not in moments
        assert moments == sorted(moments, key=lambda moment: moment or 0)


async def test_chats_have_exactly_the_length_asked_for(live: LiveServer) -> None:
    """Template included, by the server's own count."""
    traces = traces_of(await run_live(live, api="chat"))

    assert {(trace.error, trace.prompt_tokens) for trace in traces} == {(None, 40)}


async def test_without_a_tokenizer_lengths_are_about_right_and_the_usage_tells(live: LiveServer) -> None:
    """Two probes find out how many tokens a word is; here every byte is one."""
    pairs = "arrivals=burst arrivals.size=4 prompt=300 output=5"
    traces = traces_of(await run_live(live, pairs, tokenizer=False))

    assert all(trace.prompt_tokens is not None and abs(trace.prompt_tokens - 300) < 60 for trace in traces)


async def test_a_session_sends_the_real_answer_back(live: LiveServer) -> None:
    """The second prompt is the first one, its answer, and more; the server finds the front in its prefix cache."""
    pairs = "arrivals=burst arrivals.size=1 sessions.turns=2 count=2 prompt=64 output=32 seed=9"
    first, second = traces_of(await run_live(live, pairs, api="chat"))

    assert (first.error, second.error) == (None, None)
    assert second.scheduled == first.end
    assert (first.cached_tokens, second.prompt_tokens) == (0, 160)
    assert (second.cached_tokens or 0) >= 48


async def test_a_refused_request_is_recorded_and_the_run_goes_on() -> None:
    """One slot and a queue for one: the others get 429 with a time to come back."""
    runner = GatedRunner()
    config = SchedulerConfig(max_num_seqs=1, max_queued_requests=1)
    with LiveServer(config, runner=runner) as server:
        task = asyncio.create_task(run_live(server))
        await until(lambda: server.stats().counters.refused >= 4)
        runner.open()
        traces = traces_of(await task)
        refusals = server.stats().counters.refused

    refused = [trace for trace in traces if trace.error is ErrorClass.OVERLOADED]
    assert len(refused) == refusals
    assert {(trace.status, trace.retry_after) for trace in refused} == {(429, SECOND)}
    assert "--max-queued-requests" in refused[0].error_message
    assert [trace.ok for trace in traces].count(True) == 6 - refusals


async def test_a_server_that_dies_in_the_middle_does_not_end_the_run() -> None:
    """What was under way is broken, what comes later finds nobody, and all of it is recorded."""
    clock = ManualClock()
    async with paged_server(PAGES) as server:
        target = UrlTarget(server.url, clock=lambda: clock)
        await _open(target, server)
        task = asyncio.create_task(observe(target, "arrivals=constant arrivals.rate=1 count=3 prompt=8 output=4"))
        exchange = await server.next()
        exchange.begin()
        exchange.event('{"choices": [{"index": 0, "text": "a"}]}')
        await until(lambda: clock.started)
        await server.stop()
        await clock.advance_to(SECOND)
        await clock.advance_to(2 * SECOND)
        await until(task.done)

    traces = traces_of(task.result())
    assert [trace.error for trace in traces] == [ErrorClass.BROKEN_STREAM, ErrorClass.CONNECT, ErrorClass.CONNECT]


async def test_time_limits_are_those_of_the_clock() -> None:
    """A server that never answers is given up after the idle time."""
    clock = ManualClock()
    async with paged_server(PAGES) as server:
        target = UrlTarget(server.url, clock=lambda: clock)
        await _open(target, server)
        options = RunOptions(limits=TimeLimits(idle=5 * SECOND))
        task = asyncio.create_task(observe(target, "arrivals=burst arrivals.size=1 prompt=8 output=4", options))
        await server.next()
        await clock.advance_to(6 * SECOND)
        await until(task.done)

    [trace] = traces_of(task.result())
    assert (trace.error, trace.end) == (ErrorClass.TIMEOUT, 5 * SECOND)


async def test_a_stop_records_what_was_under_way() -> None:
    """With the chunks it had."""
    clock, stop = ManualClock(), Stop()
    async with paged_server(PAGES) as server:
        target = UrlTarget(server.url, clock=lambda: clock)
        await _open(target, server)
        task = asyncio.create_task(observe(target, "arrivals=burst arrivals.size=1 prompt=8 output=4", stop=stop))
        exchange = await server.next()
        exchange.begin()
        for number in range(3):
            usage = {"prompt_tokens": 8, "completion_tokens": number + 1}
            exchange.event(json.dumps({"choices": [{"index": 0, "text": "a"}], "usage": usage}))
        exchange.send(": the client has read all before this\n\n")
        await exchange.writer.drain()
        await clock.advance_to(SECOND)
        stop.request()
        await until(task.done)

    [trace] = traces_of(task.result())
    assert trace.error is ErrorClass.CUT
    assert [chunk.source for chunk in trace.chunks] == [TokenSource.RUNNING_COUNT] * 3


async def test_a_key_goes_with_every_request() -> None:
    """Probes included; and it does not show in the settings' text."""
    settings = UrlSettings(api_key="secret", model="m")
    async with paged_server(PAGES) as server:
        target = UrlTarget(server.url, settings, tokenizer=byte_tokenizer())
        await target.open()
        task = asyncio.create_task(observe(target, "arrivals=burst arrivals.size=1 prompt=8 output=4"))
        exchange = await server.next()
        exchange.begin()
        exchange.event("[DONE]")
        await exchange.end()
        await task

    assert "authorization: bearer secret" in exchange.head.lower()
    assert "secret" not in repr(settings)


async def test_failing_samples_say_why() -> None:
    """The run does not depend on them."""
    pages = {**PAGES, "/metrics": "vllm:num_requests_running 1\n"}
    async with paged_server(pages) as server:
        target = UrlTarget(server.url, tokenizer=byte_tokenizer())
        info = await target.open()
        pages["/metrics"] = "vllm:num_requests_running{ 1\n"
        task = asyncio.create_task(observe(target, "arrivals=burst arrivals.size=1 prompt=8 output=4"))
        exchange = await server.next()
        pages["/metrics"] = ("500 Internal Server Error", "")
        exchange.begin()
        exchange.event("[DONE]")
        await exchange.end()
        samples = samples_of(await task)

    assert info.kind == "vllm"
    assert samples[0].error.startswith("ValueError")
    assert samples[-1].error == "status 500"


async def test_what_the_results_cannot_tell_is_said(live: LiveServer) -> None:
    """A bare server: lengths, counts and metrics."""
    async with paged_server(PAGES) as server:
        bare = await UrlTarget(server.url, UrlSettings(kind="openai"), tokenizer=byte_tokenizer()).open()
    ours = await UrlTarget(live.url, tokenizer=byte_tokenizer()).open()

    assert len(bare.notes) == 3
    assert bare.prompts == "text, exactly as long as asked by the tokenizer that was given"
    assert (ours.kind, ours.prompts) == ("chairlift", "token ids, exactly as long as asked")
    assert ours.max_model_len == 2048


async def test_a_target_is_looked_at_before_it_is_run() -> None:
    """Or nobody knows its model."""
    with pytest.raises(ConfigError, match=r"call open\(\) before run\(\)"):
        await observe(UrlTarget("http://127.0.0.1:1"), SIX)


async def _open(target: UrlTarget, server: ScriptedServer) -> None:
    """Open a target whose server does not count words."""
    task = asyncio.create_task(target.open())
    for _ in range(1):
        (await server.next()).answer("200 OK", "{}")
    await task
