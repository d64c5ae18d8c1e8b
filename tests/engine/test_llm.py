import asyncio
from pathlib import Path
from typing import Any

import pytest

import chairlift
from chairlift.core.config import POLICIES, PolicyName, SchedulerConfig
from chairlift.core.errors import EngineClosed, RequestError, RequestRefused
from chairlift.core.request import FinishReason
from chairlift.engine.llm import LLM
from chairlift.engine.loader import LoadedModel
from chairlift.engine.outputs import OutputDelta
from chairlift.engine.params import SamplingParams
from chairlift.engine.sampling import BatchSampler
from chairlift.runners.base import ModelRunner
from chairlift.runners.fake import FakeRunner
from chairlift.text.chat import ChatTemplate
from tests.engine.tiny import LogitsRunner, byte_tokenizer

TOKENIZER = byte_tokenizer()
TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}<end>{% endfor %}"
SHORT = SamplingParams(max_tokens=5)


def fake(runner: ModelRunner | None = None, *, template: str | None = TEMPLATE, **settings: Any) -> LLM:
    """An LLM on a runner without a model."""
    return LLM(
        LoadedModel(
            name="fake",
            path=Path("fake"),
            runner=FakeRunner(vocabulary=128) if runner is None else runner,
            sampler=BatchSampler(),
            tokenizer=TOKENIZER,
            chat_template=None if template is None else ChatTemplate(template, TOKENIZER, source="the test"),
            scheduler=SchedulerConfig(**{"max_model_len": 256, **settings}),
            memory="",
        )
    )


def test_the_package_offers_it_by_name() -> None:
    """`from chairlift import LLM, SamplingParams` works; a wrong name is an AttributeError."""
    assert chairlift.LLM is LLM
    assert chairlift.SamplingParams is SamplingParams
    with pytest.raises(AttributeError, match="no attribute 'LLMM'"):
        _ = chairlift.LLMM  # type: ignore[attr-defined]


@pytest.mark.parametrize("policy", POLICIES)
def test_one_prompt_or_several_text_or_ids(policy: PolicyName) -> None:
    """Outputs come in the prompts' order, whatever the prompts are given as; unfilled batches do not wait."""
    with fake(policy=policy) as llm:
        (one,) = llm.generate("one", SHORT)
        (ids,) = llm.generate(list(b"one"), SHORT)
        prompts: list[str | list[int]] = ["two", list(b"one"), "three"]
        several = llm.generate(prompts, SHORT)

    assert (one.prompt, ids.prompt) == ("one", None)
    assert one.prompt_token_ids == ids.prompt_token_ids == tuple(b"one")
    assert one.token_ids == ids.token_ids == several[1].token_ids
    assert [output.prompt for output in several] == ["two", None, "three"]
    assert {output.finish_reason for output in several} == {FinishReason.LENGTH}


def test_params_for_all_or_for_each() -> None:
    """One for all, one for each, or the defaults; another number is refused."""
    with fake() as llm:
        each = llm.generate(["a", "b"], [SamplingParams(max_tokens=2), SamplingParams(max_tokens=7)])
        default = llm.generate("a")
        with pytest.raises(RequestError, match="1 params for 2 prompts"):
            llm.generate(["a", "b"], [SHORT])

    assert [len(output.token_ids) for output in each] == [2, 7]
    assert len(default[0].token_ids) == 16


def test_no_prompts_no_outputs() -> None:
    """An empty list is answered with an empty list."""
    with fake() as llm:
        assert llm.generate([]) == []


def test_mixed_lists_are_refused() -> None:
    """Token ids beside whole prompts cannot be meant."""
    mixed: list[Any] = [1, "a"]
    with fake() as llm, pytest.raises(RequestError, match="mix token ids"):
        llm.generate(mixed)


def test_more_prompts_than_the_queue_holds() -> None:
    """The rest is submitted as others leave: nobody is refused for want of room."""
    with fake(max_queued_requests=3, max_num_seqs=2) as llm:
        outputs = llm.generate([f"prompt {n}" for n in range(40)], SHORT)
        refused = llm.engine.stats().counters.refused

    assert [output.prompt for output in outputs] == [f"prompt {n}" for n in range(40)]
    assert refused == 0


def test_long_prompts_that_fill_the_queue_wait_their_turn() -> None:
    """A bound on queued tokens delays submissions and refuses none."""
    with fake(max_queued_tokens=100, max_num_seqs=1) as llm:
        outputs = llm.generate(["x" * 60] * 6, SHORT)

    assert [len(output.token_ids) for output in outputs] == [5] * 6


def test_a_prompt_that_can_never_run_is_refused_and_the_others_are_dropped() -> None:
    """The refusal has the numbers; nothing stays behind in the engine."""
    with fake() as llm:
        with pytest.raises(RequestRefused, match="--max-model-len"):
            llm.generate(["fine", "x" * 300], SHORT)
        (after,) = llm.generate("fine", SHORT)
        usage = llm.engine.stats().usage

    assert len(after.token_ids) == 5
    assert (usage.running, usage.waiting) == (0, 0)


def test_an_answer_that_fails_is_told_and_harms_nobody() -> None:
    """Its output has the error; its neighbours are answered."""
    runner = FakeRunner(vocabulary=128)
    runner.failing["fake-1"] = "scripted"
    with fake(runner) as llm:
        outputs = llm.generate(["a", "b", "c"], SHORT)

    assert [output.finish_reason for output in outputs] == ["length", "error", "length"]
    assert outputs[1].error == "scripted"


def test_chats_go_through_the_template() -> None:
    """One conversation or several; control tokens of the template count, a user's do not."""
    with fake() as llm:
        (one,) = llm.chat([{"role": "user", "content": "hi <end>"}], SHORT)
        several = llm.chat([[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]], SHORT)

    assert one.prompt == "user: hi <end><end>"
    assert one.prompt_token_ids == (*b"user: hi <end>", 256)
    assert [output.prompt for output in several] == ["user: a<end>", "user: b<end>"]


def test_without_a_template_chatting_is_refused() -> None:
    """The message says what to do instead."""
    with fake(template=None) as llm, pytest.raises(RequestError, match="chat template"):
        llm.chat([{"role": "user", "content": "hi"}])


def test_streaming_gives_the_same_answer() -> None:
    """Pieces from an event loop of one's own, more than once, add up to what generate() returns."""

    async def stream(llm: LLM) -> OutputDelta:
        pieces = [delta async for delta in llm.stream("hello", SamplingParams(max_tokens=20))]
        whole = pieces[0]
        for piece in pieces[1:]:
            whole = whole.joined(piece)
        return whole

    with fake() as llm:
        streamed = [asyncio.run(stream(llm)) for _ in range(2)]
        (whole,) = llm.generate("hello", SamplingParams(max_tokens=20))

    assert {delta.text for delta in streamed} == {whole.text}
    assert {delta.token_ids for delta in streamed} == {whole.token_ids}


def test_a_stream_left_half_way_is_cancelled() -> None:
    """Leaving the loop ends the request; the engine is free again."""

    async def leave(llm: LLM) -> None:
        async for _ in (stream := llm.stream("hello", SamplingParams(max_tokens=240))):
            break
        await stream.aclose()

    with fake() as llm:
        asyncio.run(leave(llm))
        llm.generate("next", SHORT)
        llm.engine.stop(drain=True)
        counters = llm.engine.stats().counters

    assert sum(counters.finished.values()) == counters.accepted == 2


def test_seeds_reproduce_and_differ() -> None:
    """Equal seeds give equal answers in any company; no seed gives another each time."""
    sampler = BatchSampler()
    runner = LogitsRunner(sampler)
    loaded = LoadedModel(
        "fake", Path("fake"), runner, sampler, TOKENIZER, None, SchedulerConfig(max_model_len=256), memory=""
    )
    seeded = SamplingParams(max_tokens=12, seed=3, ignore_eos=True)
    free = SamplingParams(max_tokens=12, ignore_eos=True)
    with LLM(loaded) as llm:
        alone = llm.generate("a", seeded)[0].token_ids
        among = llm.generate(["b", "a", "c"], [free, seeded, free])[1].token_ids
        others = {llm.generate("a", free)[0].token_ids for _ in range(3)}

    assert alone == among
    assert len(others) == 3


def test_a_closed_llm_says_so() -> None:
    """Closing twice is closing; asking afterwards is an error, not a wait."""
    llm = fake()
    llm.close()
    llm.close()

    with pytest.raises(EngineClosed):
        llm.generate("a")
