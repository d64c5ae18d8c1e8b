"""What the scheduler itself costs: microseconds of plan() + commit() per running sequence.

    python -m benchmarks.scheduler [--steps 3000] [--json FILE]

A full open batch with churn: answers of 32 to 512 tokens, so that somebody ends and somebody is admitted every few steps,
prompts of 16 to 256 tokens in chunks, blocks of 16, prefix caching, decisions, ledger, predictor and journal on. The device
takes no time; only plan() and commit() are inside the clock. `started together` begins all answers at once, so that all tables
grow at the same step: the worst case for the slowest step.

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

from chairlift.core.config import KVCapacity, PolicyName, SchedulerConfig
from chairlift.core.journal import Entry
from chairlift.core.plan import StepOutcome, Wait
from chairlift.core.request import Request
from chairlift.core.scheduler import Scheduler

SIZES = (1, 32, 256, 1024)
BLOCK_SIZE = 16
LONGEST = 1024
WARM_UP = 200


@dataclass(frozen=True)
class Result:
    """Microseconds per running sequence, over the steps in which all slots were taken."""

    policy: PolicyName
    sequences: int
    start: str
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
        yield Request(f"request-{number}", prompt, draw.randint(32, 512), stop_ids=frozenset({50_001}))
        number += 1


def measure(policy: PolicyName, sequences: int, steps: int, *, together: bool) -> Result:
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
    now, held, samples = 0, 0, []
    if together:
        prompt = list(range(BLOCK_SIZE))
        for i in range(sequences):
            scheduler.submit(Request(f"first-{i}", [i, *prompt], 512), now)
        held = sequences
    while len(samples) < steps + WARM_UP:
        while held < 2 * sequences:
            scheduler.submit(next(requests), now)
            held += 1
        begun = time.perf_counter_ns()
        plan = scheduler.plan(now)
        planned = time.perf_counter_ns() - begun
        if isinstance(plan, Wait):
            raise RuntimeError(f"the scheduler waits: {plan}")
        outcome = StepOutcome([7] * sum(plan.samples), device_time=20_000_000)
        now += 20_000_000
        begun = time.perf_counter_ns()
        events = scheduler.commit(plan, outcome, now)
        planned += time.perf_counter_ns() - begun
        held -= len(events.finished)
        if plan.single_token_rows >= 0.9 * sequences:
            samples.append(planned / 1000)
        if len(journal) > 4096:
            journal.clear()
    measured = sorted(samples[WARM_UP:] if not together else samples[16:])
    median = statistics.median(measured)
    p99 = measured[int(0.99 * len(measured))]
    start = "together" if together else "mixed"
    return Result(policy, sequences, start, median / sequences, p99 / sequences, median, len(measured))


def main() -> None:
    """Print the table; write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cases: list[tuple[PolicyName, int, bool]] = [("continuous", size, False) for size in SIZES]
    cases += [("continuous", 256, True), ("static", 32, False), ("static", 256, False)]
    print(f"Python {platform.python_version()}, {platform.machine()}; microseconds of plan + commit per running sequence")
    print(f"{'policy':<12}{'sequences':>10}{'start':>10}{'median':>9}{'p99':>8}{'p99/median':>12}{'step, us':>10}")
    results = []
    for policy, size, together in cases:
        steps = max(300, arguments.steps // (4 if size > 256 else 1))
        result = measure(policy, size, 480 if together else steps, together=together)
        results.append(asdict(result))
        ratio = result.p99 / result.median
        print(
            f"{policy:<12}{size:>10}{result.start:>10}{result.median:>9.3f}{result.p99:>8.3f}{ratio:>12.1f}"
            f"{result.step_median:>10.1f}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"python": sys.version, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
