"""How fast the simulator is: a trace of an hour on an 8B model on one H100, under each policy, on one core.

    make bench BENCH=simulator ARGS='--trace AzureLLMInferenceTrace_conv.csv'

The trace of the aim is the conversation trace of Azure's public dataset (AzureLLMInferenceTrace_conv.csv in
github.com/Azure/AzurePublicDataset/tree/master/data, CC-BY; 19,366 requests, 26.5 million tokens, 58 minutes). Without
it, as many requests of like lengths are drawn. Each policy runs in a process of its own; time is the process's
processor time (garbage collection included), memory the most that was resident.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chairlift.core.config import POLICIES, PolicyName, SchedulerConfig
from chairlift.devices.registry import find_device_model
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.simulation import simulate_load
from chairlift.lab.simulation_figures import FiguresObserver

DEVICE = "h100-sxm/llama-3.1-8b"
DRAWN = (
    "arrivals=poisson arrivals.rate=5.5 count=19366 prompt=lognormal prompt.median=900 prompt.sigma=0.8 "
    "prompt.max=8000 output=lognormal output.median=180 output.sigma=0.6 output.max=1000"
)
WHAT = {
    "alone": "figures of the scheduler alone",
    "figures": "every client's latencies",
    "traces": "a trace of each token",
}
"""What is observed: nothing but counters; what the tables of `simulate` need; what a run's records need."""


def main() -> int:
    """Print a table, or JSON. 1 when the aim of 200 times real time is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, help="AzureLLMInferenceTrace_conv.csv, or another trace")
    parser.add_argument("--observe", choices=list(WHAT), nargs="+", default=["alone", "figures"])
    parser.add_argument("--policies", choices=POLICIES, nargs="+", default=list(POLICIES))
    parser.add_argument("--count", type=int, help="only so many requests")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = [
        _apart(policy, observe, arguments.trace, arguments.count)
        for observe in arguments.observe
        for policy in arguments.policies
    ]
    print(json.dumps(rows, indent=2) if arguments.json else "\n".join(_lines(rows)))
    return (
        int(min(row["ratio"] for row in rows if row["observe"] == "alone") < 200) if "alone" in arguments.observe else 0
    )


def _apart(policy: PolicyName, observe: str, trace: Path | None, count: int | None) -> dict[str, Any]:
    """In a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (policy, observe, trace, count))


def measure(policy: PolicyName, observe: str, trace: Path | None = None, count: int | None = None) -> dict[str, Any]:
    """Simulate once."""
    load = _load(trace, count)
    schedule, model = Schedule(load), find_device_model(DEVICE)
    config = SchedulerConfig(
        policy=policy,
        max_model_len=16_384,
        max_num_seqs=256,
        max_num_batched_tokens=8_192,
        batch_size=64,
        max_batch_size=64,
        max_queued_requests=0,
    )
    observers = [FiguresObserver(load)] if observe == "figures" else []
    began, before = time.process_time(), _resident()
    run = simulate_load(schedule, model, config, observers=observers, traces=observe == "traces")
    figures = observers[0].figures(run) if observers else None
    took = time.process_time() - began
    result = run.result
    return {
        "policy": policy,
        "observe": observe,
        "requests": result.counters.accepted,
        "tokens": result.counters.prompt_tokens + result.counters.output_tokens,
        "virtual_seconds": result.wall / 1e9,
        "processor_seconds": took,
        "ratio": result.wall / 1e9 / took,
        "steps": result.steps,
        "plans": result.plans,
        "memory_mib": _resident(),
        "memory_before_mib": before,
        "ttft_p99": None if figures is None or figures.ttft is None else figures.ttft.percentiles[99],
    }


def _load(trace: Path | None, count: int | None) -> Load:
    pairs = DRAWN.split() if trace is None else ["arrivals=trace", f"arrivals.file={trace.resolve()}"]
    return load_from_pairs(
        pairs if count is None else [*[one for one in pairs if "count=" not in one], f"count={count}"]
    )


def _resident() -> int:
    """MiB, the most so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1024 * 1024 if sys.platform == "darwin" else 1024)


def _lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "| observed | policy | virtual, s | processor, s | times real time | steps | plans | us a plan | memory, MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {WHAT[row['observe']]} | {row['policy']} | {row['virtual_seconds']:,.0f} | "
        f"{row['processor_seconds']:.1f} | {row['ratio']:,.0f} | {row['steps']:,} | {row['plans']:,} | "
        f"{row['processor_seconds'] / row['plans'] * 1e6:.0f} | {row['memory_mib']:,} |"
        for row in rows
    ]
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
