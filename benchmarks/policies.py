"""Chairlift's three policies on a load with a long tail, on one loaded model, taking turns.

    python -m benchmarks.policies [--rounds 7] [--sizes STATIC DYNAMIC] [--model PATH] [--json FILE]

48 requests with prompts of 32 tokens; answers of 20, and of 200 for each eighth; greedy, exact lengths. They arrive at
an even pace over a third of the time that continuous batching needs for the load when all of it is there at once.
Continuous and dynamic may run 32 at once. Static and dynamic run with the batch size that is best for each on this load
(of 4, 8, 16 and 32; searched first). Compared is within a round: continuous' output tokens a second over the other's.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks._loads import prompt
from benchmarks._machine import describe
from benchmarks._statistics import median_interval, ratios
from benchmarks._turns import alone
from chairlift import demo_model
from chairlift.core.config import PolicyName
from chairlift.core.request import Nanoseconds
from chairlift.engine.config import EngineConfig
from chairlift.engine.core import EngineCore
from chairlift.engine.drive import Drive, TimedRequest, drive
from chairlift.engine.loader import LoadedModel, load_model
from chairlift.engine.params import SamplingParams

REQUESTS, PROMPT, SHORT, LONG, LONG_EVERY = 48, 32, 20, 200, 8
SIZES = (4, 8, 16, 32)
SETTINGS = {"max_model_len": 512, "max_num_seqs": 32, "batch_size": 32, "max_batch_size": 32, "threads": 2}
SIZE_SETTINGS: dict[PolicyName, str] = {"static": "batch_size", "dynamic": "max_batch_size"}
TOKENS = sum(LONG if i % LONG_EVERY == LONG_EVERY - 1 else SHORT for i in range(REQUESTS))


@dataclass(frozen=True, slots=True)
class Run:
    """One policy on the load."""

    seconds: float
    """From the first arrival until the last result has left."""
    mean_latency: float
    p99_latency: float
    mean_first_token: float
    """Seconds from arrival until the first token left: under static and dynamic the whole answer leaves at once."""
    useful: float
    """Prefill and decode tokens / all computed tokens."""

    @property
    def tokens_per_second(self) -> float:
        return TOKENS / self.seconds


def load(span: Nanoseconds) -> list[TimedRequest]:
    """The requests, arriving evenly over `span`."""
    draw = random.Random(48)
    return [
        TimedRequest(
            f"request-{i}",
            i * span // REQUESTS,
            prompt(draw, PROMPT),
            SamplingParams(
                max_tokens=LONG if i % LONG_EVERY == LONG_EVERY - 1 else SHORT, temperature=0, ignore_eos=True
            ),
        )
        for i in range(REQUESTS)
    ]


def run(model: LoadedModel, policy: PolicyName, span: Nanoseconds, size: int | None = None) -> Run:
    """The load on an engine of its own.

    Raises:
        ValueError: an answer has another length than asked for.
    """
    sizes: dict[str, Any] = {} if size is None else {SIZE_SETTINGS[policy]: size}
    config = model.scheduler.with_policy(policy, **sizes)
    core = EngineCore(config, model.runner, model.tokenizer, model.sampler)
    result = drive(core, load(span), lambda nanoseconds: time.sleep(nanoseconds / 1e9))
    if sum(request.output_tokens for request in result.requests) != TOKENS:
        raise ValueError(f"{policy} generated {[request.output_tokens for request in result.requests]}.")
    return summary(result)


def summary(result: Drive) -> Run:
    """Figures of a drive."""
    latencies = sorted((request.released - request.arrival) / 1e9 for request in result.requests)
    firsts = [((request.first_token_released or 0) - request.arrival) / 1e9 for request in result.requests]
    return Run(
        seconds=result.wall / 1e9,
        mean_latency=sum(latencies) / len(latencies),
        p99_latency=latencies[-1 - len(latencies) // 100],
        mean_first_token=sum(firsts) / len(firsts),
        useful=result.ledger.useful,
    )


def best_size(model: LoadedModel, policy: PolicyName, span: Nanoseconds, lock: Path | None) -> int:
    """The batch size of SIZES under which the policy is fastest, by the better of two runs each."""
    times: dict[int, float] = {}
    for size in SIZES:
        with alone(lock):
            times[size] = min(run(model, policy, span, size).seconds for _ in range(2))
        print(f"{policy}, batches of {size}: {TOKENS / times[size]:.0f} tokens/s", file=sys.stderr, flush=True)
    return min(times, key=lambda size: times[size])


def print_report(runs: Mapping[str, Sequence[Run]]) -> None:
    """The table, as docs/performance.md has it."""
    print("| policy | output tokens/s | wall, s | mean latency, s | p99 latency, s | mean first token, s | useful |")
    print("|---|---|---|---|---|---|---|")
    for name, several in runs.items():
        speed = median_interval([one.tokens_per_second for one in several])
        middle = sorted(several, key=lambda one: one.seconds)[len(several) // 2]
        print(
            f"| {name} | {speed.median:.0f} [{speed.low:.0f}, {speed.high:.0f}] | {middle.seconds:.1f} "
            f"| {middle.mean_latency:.1f} | {middle.p99_latency:.1f} | {middle.mean_first_token:.1f} "
            f"| {100 * middle.useful:.0f}% |"
        )
    print()
    ours = [one.tokens_per_second for one in runs["continuous"]]
    for name, several in runs.items():
        if name != "continuous":
            print(f"continuous / {name}: {median_interval(ratios(ours, [one.tokens_per_second for one in several]))}")


def main() -> int:
    """Calibrate, search, take turns, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", type=int, nargs=2, help="batch sizes of static and dynamic, instead of a search")
    parser.add_argument("--model", type=Path, help="GGUF file or Hugging Face directory (default: the demo model)")
    parser.add_argument("--lock", type=Path, help="a file to lock for each round, where several measure on one machine")
    parser.add_argument("--json", type=Path, help="write every run there")
    arguments = parser.parse_args()
    path = arguments.model or demo_model.locate()
    model = load_model(EngineConfig.of(str(path), SETTINGS))
    with alone(arguments.lock):
        run(model, "continuous", 0)
        span = int(run(model, "continuous", 0).seconds * 1e9 / 3)
    turns: list[tuple[str, PolicyName, int | None]] = [("continuous", "continuous", None)]
    given = dict(zip(SIZE_SETTINGS, arguments.sizes or (), strict=False))
    for closed in SIZE_SETTINGS:
        best = given.get(closed) or best_size(model, closed, span, arguments.lock)
        turns.append((f"{closed}, batches of {best}", closed, best))
    runs: dict[str, list[Run]] = {name: [] for name, _, _ in turns}
    for number in range(arguments.rounds):
        with alone(arguments.lock):
            for name, policy, size in turns if number % 2 == 0 else reversed(turns):
                runs[name].append(run(model, policy, span, size))
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
    print(f"{time.strftime('%Y-%m-%d')}, {describe()}; {path.name}, arrivals over {span / 1e9:.1f} s\n")
    print_report(runs)
    if arguments.json:
        record: dict[str, Any] = {name: [asdict(one) for one in several] for name, several in runs.items()}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
