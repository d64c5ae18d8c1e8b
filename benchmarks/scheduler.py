"""What the scheduler itself costs: microseconds of plan() + commit() per running sequence.

    python -m benchmarks.scheduler [--steps 3000] [--json FILE]

A full open batch of answers of 32 to 512 tokens and prompts of 16 to 256 in chunks, blocks of 16; prefix caching,
decisions, ledger, predictor and journal on, the collector calmed as the engine does it. The device takes no time; only
plan() and commit() are inside the clock.

    decode    512-token answers that began at different steps: tables grow all the time, nobody comes or goes
    churn     mixed answers: at 256 sequences about one ends and one is admitted in every step, blocks are hashed and
              evicted
    together  all answers began at once, so that all tables grow at the same step: the worst case for the slowest step

Aim: at most 0.5 microseconds at 256 sequences (median), the 99th percentile within three times the median.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from chairlift.core.config import KVCapacity, PolicyName, SchedulerConfig
from chairlift.core.journal import Entry
from chairlift.core.plan import StepOutcome, Wait
from chairlift.core.request import Request
from chairlift.core.scheduler import Scheduler
from chairlift.engine.collector import calm_collector

Case = Literal["decode", "churn", "together"]

SIZES = (1, 32, 256, 1024)
BLOCK_SIZE = 16
LONGEST = 1024
WARM_UP = 200
STOP_IDS = frozenset({50_001})


@dataclass(frozen=True)
class Result:
    """Microseconds per running sequence, over the steps in which nine slots of ten or more decoded."""

    policy: PolicyName
    case: Case
    sequences: int
    median: float
    p99: float
    step_median: float
    """Microseconds of the whole step."""
    steps: int


def endless_requests(seed: int) -> Iterator[Request]:
    """Mixed lengths, no two prompts alike."""
    draw = random.Random(seed)
    number = 0
    while True:
        prompt = [draw.randrange(50_000) for _ in range(draw.randint(16, 256))]
        yield Request(f"request-{number}", prompt, draw.randint(32, 512), stop_ids=STOP_IDS)
        number += 1


def first_requests(case: Case, sequences: int) -> list[Request]:
    """What runs from the start: answers of 512 tokens whose prompts end at different places of a block, or not."""
    if case == "churn":
        return []
    draw = random.Random(2)
    spread = BLOCK_SIZE if case == "decode" else 1
    prompts = [[draw.randrange(50_000) for _ in range(BLOCK_SIZE + i % spread)] for i in range(sequences)]
    return [Request(f"first-{i}", prompt, 512, stop_ids=STOP_IDS) for i, prompt in enumerate(prompts)]


def measure(policy: PolicyName, case: Case, sequences: int, steps: int) -> Result:
    """Keep `sequences` running for `steps` steps and time each plan + commit."""
    capacity = KVCapacity(BLOCK_SIZE, num_blocks=sequences * LONGEST // BLOCK_SIZE, scratch_block=sequences * 64)
    journal: list[Entry] = []
    config = SchedulerConfig(
        policy=policy,
        max_model_len=LONGEST,
        max_num_seqs=sequences,
        batch_size=sequences,
        max_batch_size=sequences,
        max_num_batched_tokens=max(512, 2 * sequences),
    )
    scheduler = Scheduler(config, capacity, journal=journal)
    requests = endless_requests(seed=1)
    first = first_requests(case, sequences)
    for request in first:
        scheduler.submit(request, now=0)
    now, held = 0, len(first)
    samples: list[float] = []
    while len(samples) < steps:
        while held < 2 * sequences and case == "churn":
            scheduler.submit(next(requests), now)
            held += 1
        begun = time.perf_counter_ns()
        plan = scheduler.plan(now)
        spent = time.perf_counter_ns() - begun
        if isinstance(plan, Wait):
            break
        outcome = StepOutcome([7] * sum(plan.samples), device_time=20_000_000)
        now += 20_000_000
        begun = time.perf_counter_ns()
        events = scheduler.commit(plan, outcome, now)
        spent += time.perf_counter_ns() - begun
        held -= len(events.finished)
        if plan.single_token_rows >= 0.9 * sequences:
            samples.append(spent / 1000)
        if len(journal) > 4096:
            journal.clear()
    measured = sorted(samples[WARM_UP if case == "churn" else 16 :])
    median = statistics.median(measured)
    p99 = measured[int(0.99 * len(measured))]
    return Result(policy, case, sequences, median / sequences, p99 / sequences, median, len(measured))


def main() -> None:
    """Print the table; write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cases: list[tuple[PolicyName, Case, int]] = [("continuous", "decode", size) for size in SIZES]
    cases += [("continuous", "churn", size) for size in SIZES]
    cases += [("continuous", "together", 256), ("static", "churn", 32), ("static", "churn", 256)]
    calm_collector()
    print(
        f"Python {platform.python_version()}, {platform.machine()}; microseconds of plan + commit per running sequence"
    )
    print(f"{'policy':<12}{'case':<10}{'sequences':>10}{'median':>9}{'p99':>8}{'p99/median':>12}{'step, us':>10}")
    results = []
    for policy, case, size in cases:
        result = measure(policy, case, size, max(300, arguments.steps // (4 if size > 256 else 1)))
        results.append(asdict(result))
        print(
            f"{policy:<12}{case:<10}{size:>10}{result.median:>9.3f}{result.p99:>8.3f}"
            f"{result.p99 / result.median:>12.1f}{result.step_median:>10.1f}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"python": sys.version, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
