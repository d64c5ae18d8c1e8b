"""What sampling costs: milliseconds for one step's logits, 32 rows of a vocabulary of 49,152.

    python -m benchmarks.sampling [--rows 32] [--repeats 50]

Logits are drawn from a normal distribution: `peaked` (spread 6) looks like a model that knows what comes next, `flat`
(spread 1.5) like one that does not, the worst case for top_p. Median over the repeats; argmax alone is the floor.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from chairlift.engine.params import SamplingParams
from chairlift.engine.sampling import BatchSampler

VOCABULARY = 49_152
SPREADS = {"peaked": 6.0, "flat": 1.5}
CASES: Mapping[str, Mapping[str, Any]] = {
    "greedy": {"temperature": 0},
    "greedy, min_tokens": {"temperature": 0, "min_tokens": 9},
    "greedy, penalties": {"temperature": 0, "frequency_penalty": 0.5},
    "temperature": {},
    "top_k 40": {"top_k": 40},
    "top_p 0.95": {"top_p": 0.95},
    "top_k 40, top_p 0.95": {"top_k": 40, "top_p": 0.95},
}


def median_ms(call: Callable[[], object], repeats: int) -> float:
    """Milliseconds of one call, after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return 1000 * statistics.median(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=50)
    arguments = parser.parse_args()
    rows, repeats = arguments.rows, arguments.repeats
    names = [f"r{row}" for row in range(rows)]
    noise = np.random.default_rng(0).standard_normal((rows, VOCABULARY), dtype=np.float32)
    print(f"{rows} rows x {VOCABULARY}, ms a step{'peaked':>14}{'flat':>10}")
    logits = {name: noise * np.float32(spread) for name, spread in SPREADS.items()}
    floor = [median_ms(lambda view=view: view.argmax(axis=1), repeats) for view in logits.values()]  # type: ignore[misc]
    print(f"{'argmax alone':<26}" + "".join(f"{value:>12.3f}" for value in floor))
    for label, params in CASES.items():
        sampler = BatchSampler()
        for number, name in enumerate(names):
            sampler.add(name, SamplingParams(max_tokens=None, seed=number, **params), frozenset({2}))
            sampler.accept(name, number)
        costs = [median_ms(lambda view=view: sampler(names, view), repeats) for view in logits.values()]  # type: ignore[misc]  # noqa: B023
        print(f"{label:<26}" + "".join(f"{value:>12.3f}" for value in costs))


if __name__ == "__main__":
    main()
