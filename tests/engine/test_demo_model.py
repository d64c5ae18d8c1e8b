"""The whole engine on the demo model: what only a real model can show."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from chairlift.core.config import POLICIES, PolicyName
from chairlift.core.request import FinishReason
from chairlift.engine.config import EngineConfig
from chairlift.engine.llm import LLM
from chairlift.engine.loader import load_model
from chairlift.engine.params import SamplingParams
from chairlift.engine.sampling import BatchSampler
from chairlift.records.schema import StepRecord
from chairlift.runners.base import Sampled
from tests.engine.tiny import Witness

pytestmark = pytest.mark.model

NEAR_TIE = 2e-3
"""Logits of the first two tokens closer than this may change places with the batch's size."""
PROMPTS = [
    "Once upon a time",
    "The three largest rivers of Europe are",
    "def fibonacci(n):",
    "Dear Sir or Madam, I am writing to you because",
    "1, 2, 3, 4,",
    "A recipe for bread: first",
]


class WatchedSampler(BatchSampler):
    """Notes by how much the likeliest token led at each position of each request."""

    def __init__(self) -> None:
        super().__init__()
        self.leads: dict[str, list[float]] = {}

    def __call__(self, request_ids: Sequence[str], logits: NDArray[np.float32]) -> Sampled:
        first_two = np.partition(logits, -2, axis=1)[:, -2:]
        for request_id, lead in zip(request_ids, (first_two[:, 1] - first_two[:, 0]).tolist(), strict=True):
            self.leads.setdefault(request_id, []).append(lead)
        return super().__call__(request_ids, logits)


@pytest.fixture(scope="module")
def sampler() -> WatchedSampler:
    """What the model's logits go through."""
    return WatchedSampler()


@pytest.fixture(scope="module")
def llm(demo_model_path: Path, sampler: WatchedSampler) -> Iterator[LLM]:
    """The demo model, loaded once."""
    settings = {"threads": 2, "max_model_len": 512, "num_kv_blocks": 64, "max_num_seqs": 8, "batch_size": 4}
    loaded = load_model(EngineConfig.of(str(demo_model_path), settings))
    loaded.runner._sampler = sampler  # type: ignore[attr-defined]
    loaded.runner._seeded = sampler.seeded  # type: ignore[attr-defined]
    with LLM(replace(loaded, sampler=sampler)) as ready:
        yield ready


def test_a_chat_is_answered_and_ends_by_itself(llm: LLM) -> None:
    """The model's own chat template and end token: a short fact, stopped by the model."""
    (output,) = llm.chat(
        [{"role": "user", "content": "What is the capital of France?"}], SamplingParams(temperature=0, max_tokens=40)
    )

    assert "Paris" in output.text
    assert output.finish_reason is FinishReason.STOP
    assert output.stop_reason in llm.tokenizer.special.end_ids


def test_the_same_tokens_under_the_three_policies(llm: LLM, sampler: WatchedSampler) -> None:
    """Greedy answers differ nowhere but, if at all, from a near tie on; the policies are switched live."""
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    answers: dict[PolicyName, list[tuple[int, ...]]] = {}
    leads: list[list[float]] = []
    for policy in POLICIES:
        llm.engine.switch_policy(policy)
        outputs = llm.generate(PROMPTS, params)
        answers[policy] = [output.token_ids for output in outputs]
        leads = [sampler.leads[output.request_id] for output in outputs]
    llm.engine.switch_policy("continuous")

    for policy in POLICIES:
        for mine, reference, lead in zip(answers[policy], answers["continuous"], leads, strict=True):
            first = next((n for n, pair in enumerate(zip(mine, reference, strict=True)) if pair[0] != pair[1]), None)
            assert first is None or lead[first] < NEAR_TIE, (policy, first, lead)


def test_a_seed_reproduces_an_answer_whatever_runs_beside_it(llm: LLM) -> None:
    """Equal request, equal seed, equal answer: in a batch, alone, and beside others under another policy."""
    params = [SamplingParams(temperature=1, max_tokens=24, seed=n, ignore_eos=True) for n in range(len(PROMPTS))]

    together = [output.token_ids for output in llm.generate(PROMPTS, params)]
    alone = [llm.generate([prompt], one)[0].token_ids for prompt, one in zip(PROMPTS, params, strict=True)]
    llm.engine.switch_policy("static")
    closed = [output.token_ids for output in llm.generate(PROMPTS, params)]
    llm.engine.switch_policy("continuous")

    assert alone == together
    assert closed == together


def test_another_seed_gives_another_answer(llm: LLM) -> None:
    """Three seeds, three texts."""
    params = [SamplingParams(temperature=0.9, top_p=0.95, max_tokens=16, seed=n, ignore_eos=True) for n in range(3)]

    assert len({output.text for output in llm.generate([PROMPTS[0]] * 3, params)}) == 3


def test_a_real_step_shows_its_work(llm: LLM) -> None:
    """M1: a prefill does many operations for each byte it moves, a decode few; both show in the records."""
    witness = Witness()
    llm.engine.attach(witness)
    llm.generate([" ".join(PROMPTS)], SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))
    llm.engine.detach(witness)

    def intensity(step: StepRecord) -> float:
        moved = step.weight_bytes + step.decode_kv_bytes + step.prefill_kv_bytes
        return (step.decode_flops + step.prefill_flops) / moved

    prefill, *decodes = witness.steps
    assert prefill.prefill > 30
    assert len(decodes) == 2
    assert all(intensity(prefill) > 10 * intensity(step) for step in decodes)
    assert all(step.device_time > 0 for step in witness.steps)


def test_start_up_tells_where_the_memory_goes(demo_model_path: Path, llm: LLM) -> None:
    """The model is named after its file."""
    assert llm.name == demo_model_path.stem
    assert llm.chat_template is not None
