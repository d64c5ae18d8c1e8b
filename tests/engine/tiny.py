"""A tokenizer of bytes, runners without a model, and an inbox: what the engine's tests stand on."""

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from chairlift.core.blocks import BlockPool
from chairlift.core.config import SchedulerConfig
from chairlift.core.plan import StepOutcome, StepPlan, Wait
from chairlift.core.request import FinishReason
from chairlift.engine.core import EngineCore
from chairlift.engine.observe import Observer
from chairlift.engine.outputs import OutputDelta
from chairlift.engine.params import SamplingParams
from chairlift.engine.sampling import BatchSampler
from chairlift.records.schema import BatchRecord, DecisionRecord, RequestRecord, ShareRecord, StepRecord
from chairlift.runners.base import ModelRunner, Sampler
from chairlift.runners.fake import FakeRunner
from chairlift.text.special import SpecialTokens
from chairlift.text.tokenizer import Tokenizer

END = 256
"""The end-of-sequence token; 0 to 255 are the bytes."""
VOCABULARY = 257


def byte_tokenizer() -> Tokenizer:
    """Token n is the byte n; 256 is `<end>`."""
    vocabulary = {letter: n for n, letter in enumerate(byte_letters())}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<end>", special=True)])
    return Tokenizer(backend, SpecialTokens(eos_id=END, end_ids=frozenset({END})), {"eos_token": "<end>"})


def byte_letters() -> list[str]:
    """GPT-2's printable letter for each byte."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(n) if n in printable else chr(next(others)) for n in range(256)]


class Clock:
    """Time that passes by `tick` at each look, and otherwise only when told."""

    def __init__(self, tick: int = 0) -> None:
        self.time = 0
        self.tick = tick

    def __call__(self) -> int:
        self.time += self.tick
        return self.time


class LogitsRunner(FakeRunner):
    """Samples from logits that are a function of the whole context, as read back through the KV tables."""

    def __init__(self, sampler: Sampler, *, num_blocks: int = 64, block_size: int = 16, sharpness: float = 2.0) -> None:
        super().__init__(num_blocks=num_blocks, block_size=block_size, vocabulary=2**31)
        self._sampler = sampler
        self._sharpness = sharpness
        self.broken_rows: dict[str, float] = {}
        """Request id -> what its next row of logits is full of."""

    def execute(self, plan: StepPlan) -> StepOutcome:
        outcome = super().execute(plan)
        rows = plan.sampled_rows
        if not rows:
            return outcome
        ids = [plan.request_ids[row] for row in rows]
        logits = np.stack([self._logits(digest) for digest in outcome.tokens])
        for place, request_id in enumerate(ids):
            if request_id in self.broken_rows:
                logits[place] = self.broken_rows.pop(request_id)
        sampled = self._sampler(ids, logits)
        failures = {rows[place]: message for place, message in sampled.failures.items()}
        return replace(outcome, tokens=sampled.tokens, failures={**outcome.failures, **failures})

    def _logits(self, digest: int) -> NDArray[np.float32]:
        return np.random.default_rng(digest).standard_normal(VOCABULARY, dtype=np.float32) * self._sharpness


class ScriptedRunner(FakeRunner):
    """Says to each request what it was told to, byte by byte, then `<end>` for ever."""

    def __init__(self, answers: dict[str, bytes], *, num_blocks: int = 64, block_size: int = 16) -> None:
        super().__init__(num_blocks=num_blocks, block_size=block_size)
        self._said = dict.fromkeys(answers, 0)
        self._answers = answers

    def execute(self, plan: StepPlan) -> StepOutcome:
        outcome = super().execute(plan)
        tokens = [self._next(plan.request_ids[row]) for row in plan.sampled_rows]
        return replace(outcome, tokens=tokens)

    def _next(self, request_id: str) -> int:
        place = self._said[request_id]
        self._said[request_id] += 1
        answer = self._answers[request_id]
        return answer[place] if place < len(answer) else END


class GatedRunner(FakeRunner):
    """Steps happen only as allowed."""

    def __init__(self, *, num_blocks: int = 64, block_size: int = 16) -> None:
        super().__init__(num_blocks=num_blocks, block_size=block_size, vocabulary=128)
        self._permits = threading.Semaphore(0)
        self._open = threading.Event()

    def execute(self, plan: StepPlan) -> StepOutcome:
        if not self._open.is_set():
            self._permits.acquire()
        return super().execute(plan)

    def allow(self, steps: int) -> None:
        """Let so many more steps happen."""
        self._permits.release(steps)

    def open(self) -> None:
        """Let all happen."""
        self._open.set()
        self._permits.release()


class Inbox:
    """Collects what requests get."""

    def __init__(self) -> None:
        self.deltas: list[OutputDelta] = []

    def __call__(self, delta: OutputDelta) -> None:
        self.deltas.append(delta)

    def answer(self, request_id: str) -> OutputDelta:
        """All that a request got, joined."""
        first, *rest = [delta for delta in self.deltas if delta.request_id == request_id]
        for delta in rest:
            first = first.joined(delta)
        return first

    def texts(self) -> dict[str, str]:
        """Every answer's text."""
        return {name: self.answer(name).text for name in dict.fromkeys(delta.request_id for delta in self.deltas)}

    def tokens(self) -> dict[str, tuple[int, ...]]:
        """Every answer's tokens."""
        return {name: self.answer(name).token_ids for name in dict.fromkeys(delta.request_id for delta in self.deltas)}

    def reasons(self) -> dict[str, FinishReason | None]:
        """Why every answer ended; None while it has not."""
        return {name: self.answer(name).finish_reason for name in dict.fromkeys(d.request_id for d in self.deltas)}


class Witness(Observer):
    """Keeps every record."""

    def __init__(self) -> None:
        self.steps: list[StepRecord] = []
        self.shares: list[ShareRecord] = []
        self.requests: dict[str, RequestRecord] = {}
        self.decisions: list[DecisionRecord] = []
        self.batches: list[BatchRecord] = []

    def on_step(self, record: StepRecord) -> None:
        self.steps.append(record)

    def on_share(self, record: ShareRecord) -> None:
        self.shares.append(record)

    def on_request(self, record: RequestRecord) -> None:
        assert record.request_id not in self.requests
        self.requests[record.request_id] = record

    def on_decision(self, record: DecisionRecord) -> None:
        self.decisions.append(record)

    def on_batch(self, record: BatchRecord) -> None:
        self.batches.append(record)


def make_core(
    runner: ModelRunner | None = None,
    *,
    sampler: BatchSampler | None = None,
    clock: Clock | None = None,
    observers: Iterable[Observer] = (),
    pool: BlockPool | None = None,
    **settings: Any,
) -> EngineCore:
    """An engine on a fake runner whose tokens are ASCII, unless another is given; a microsecond passes at each look."""
    return EngineCore(
        SchedulerConfig(**{"max_model_len": 512, **settings}),
        FakeRunner(vocabulary=128) if runner is None else runner,
        byte_tokenizer(),
        sampler,
        clock=Clock(tick=1000) if clock is None else clock,
        observers=observers,
        pool=pool,
    )


def submit(core: EngineCore, request_id: str, inbox: Inbox, *, prompt: str = "", **params: Any) -> None:
    """Hand in a request whose prompt is its id unless another is given."""
    core.submit(
        core.tokenizer.encode(prompt or request_id), SamplingParams(**params), request_id=request_id, sink=inbox
    )


def run(core: EngineCore, most: int = 10_000) -> int:
    """Step until no work is left. Returns how many steps it took."""
    for steps in range(most):
        if not core.has_work:
            return steps
        wait = core.step()
        if wait is not None and wait.until is None:
            assert not core.has_work, wait
    raise AssertionError(f"still at work after {most} steps")


def idle(wait: Wait | None) -> bool:
    """Whether step() found nothing to compute."""
    return wait is not None
