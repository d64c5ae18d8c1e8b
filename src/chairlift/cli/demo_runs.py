"""The two loads of `chairlift demo`, and running them under each policy on one loaded model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from chairlift.core.config import PolicyName
from chairlift.core.request import Nanoseconds
from chairlift.engine.core import Clock, EngineCore
from chairlift.engine.drive import Drive, Sleep, TimedRequest, drive
from chairlift.engine.loader import LoadedModel
from chairlift.engine.params import SamplingParams
from chairlift.engine.recording import recorded
from chairlift.text.tokenizer import Tokenizer

LoadName = Literal["staggered", "straggler"]

_SECOND = 1_000_000_000
_TEXT = (
    "A cable car leaves when it is full. A shuttle leaves when it is full, or when its first passenger has waited "
    "long enough. A chairlift never stops: at every chair someone gets off and someone gets on. "
)


@dataclass(frozen=True, slots=True)
class DemoSizes:
    """How large the loads are."""

    slots: int = 8
    """Sequences that run at once: batch_size, max_batch_size and max_num_seqs alike."""
    requests: int = 24
    short_answer: int = 20
    long_answer: int = 160
    long_every: int = 8
    """Each so-manieth request has the long answer."""
    gap: Nanoseconds = _SECOND // 4
    """Between two arrivals."""
    straggler: int = 200
    """Tokens of the long answer beside slots - 1 short ones, all at t = 0."""

    def settings(self) -> dict[str, Any]:
        """What the model is loaded with: equal terms for the three policies."""
        return {
            "max_num_seqs": self.slots,
            "batch_size": self.slots,
            "max_batch_size": self.slots,
            "max_model_len": 1024,
        }


@dataclass(frozen=True, slots=True)
class DemoRun:
    """One load under one policy."""

    load: LoadName
    policy: PolicyName
    drive: Drive


def staggered(sizes: DemoSizes, tokenizer: Tokenizer) -> list[TimedRequest]:
    """Arrivals at a steady pace, prompts of 24 to 96 tokens, each so-manieth answer long."""
    requests = []
    for i in range(sizes.requests):
        long = i % sizes.long_every == sizes.long_every // 2
        answer = sizes.long_answer if long else sizes.short_answer
        requests.append(_request(tokenizer, i, due=i * sizes.gap, prompt=24 + (29 * i) % 73, answer=answer))
    return requests


def straggler(sizes: DemoSizes, tokenizer: Tokenizer) -> list[TimedRequest]:
    """One batch at t = 0: all answers short but the last."""
    answers = [sizes.short_answer] * (sizes.slots - 1) + [sizes.straggler]
    return [_request(tokenizer, i, due=0, prompt=32, answer=answer) for i, answer in enumerate(answers)]


def run_demo(
    loaded: LoadedModel,
    sizes: DemoSizes,
    policies: Sequence[PolicyName],
    *,
    clock: Clock = time.monotonic_ns,
    sleep: Sleep | None = None,
    folder: Path | None = None,
) -> Iterator[DemoRun]:
    """Every load under every policy, each on an engine of its own with an empty KV pool; the model stays loaded.

    Args:
        loaded: the model.
        sizes: of the loads.
        policies: in the order in which they run.
        clock: of the engines, nanoseconds.
        sleep: on that clock.
        folder: where each run's records go, in a folder of its own; None keeps none.

    Raises:
        RecordError: a folder holds a run already, or cannot be written.
        RequestRefused: the sizes do not fit the model or the pool.
    """
    loads: dict[LoadName, list[TimedRequest]] = {
        "staggered": staggered(sizes, loaded.tokenizer),
        "straggler": straggler(sizes, loaded.tokenizer),
    }
    for load, schedule in loads.items():
        for policy in policies:
            config = replace(loaded.scheduler, policy=policy)
            core = EngineCore(config, loaded.runner, loaded.tokenizer, loaded.sampler, clock=clock)
            kept = folder / f"{load}-{policy}" if folder else None
            with recorded(core, loaded, kept, {"name": f"demo {load}", **asdict(sizes)}):
                driven = drive(core, schedule, sleep or _sleep)
            yield DemoRun(load, policy, driven)


def as_json(runs: Sequence[DemoRun], sizes: DemoSizes) -> dict[str, Any]:
    """Everything measured: times in nanoseconds."""
    return {
        "sizes": asdict(sizes),
        "runs": [
            {
                "load": run.load,
                "policy": run.policy,
                "wall": run.drive.wall,
                "ledger": {str(category): value for category, value in run.drive.ledger.times.items()},
                "recoverable": run.drive.ledger.recoverable,
                "tokens": asdict(run.drive.ledger.tokens),
                "slots": asdict(run.drive.ledger.slots),
                "requests": [asdict(record) for record in run.drive.requests],
            }
            for run in runs
        ],
    }


def _request(tokenizer: Tokenizer, i: int, *, due: Nanoseconds, prompt: int, answer: int) -> TimedRequest:
    # The number in front makes every prompt another one, so that the prefix cache helps nobody.
    ids = tokenizer.encode(f"Request {i}. " + _TEXT * 8)[:prompt]
    return TimedRequest(f"request-{i}", due, ids, SamplingParams(max_tokens=answer, temperature=0, ignore_eos=True))


def _sleep(nanoseconds: Nanoseconds) -> None:
    time.sleep(nanoseconds / _SECOND)
