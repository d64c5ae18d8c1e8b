"""The doctor on cases drawn at random: devices, lengths and seeds, with a fault or without one.

    python scripts/diagnose_random.py --seed 7 --count 100

A healthy case has sound settings and a quarter to three fifths of the requests that a burst of 80 gets through. What is
planted may not show: two slots are enough for some draws, and a pool that is small for others. So a miss is printed
with its figures, to be judged by whoever reads it.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from chairlift.advisor.doctor.diagnose import Diagnosis, diagnose  # noqa: E402
from tests.advisor.doctor.ward import Planted  # noqa: E402

DEVICES = (
    "h100-sxm/llama-3.1-8b",
    "a100-80gb-sxm/qwen2.5-14b",
    "h100-sxm/llama-3.1-70b/tp4",
    "rtx-4090/mistral-7b",
    "h200-sxm/qwen3-32b",
    "l4/llama-3.1-8b",
    "mi300x/qwen2.5-32b",
    "l40s/qwen3-8b",
)
FAULTS = (
    "slots_short",
    "preemption_thrash",
    "prefill_interference",
    "straggler_waste",
    "waits_to_fill",
    "delay_too_long",
    "reservation_too_large",
    "overload",
    "client_concurrency",
)
ALIKE = {"preemption_thrash": {"preemption_thrash", "kv_too_small"}}
"""Faults of which the draw decides which of several rules is right."""
SECOND = 10**9


def draw(random: Random, number: int) -> Planted:
    """One case; about a third are healthy."""
    device, base = random.choice(DEVICES), {"max_num_seqs": 64, "max_model_len": 8192}
    config: dict[str, Any] = base | {"max_num_batched_tokens": random.choice((512, 1024))}
    prompt, output = random.choice((60, 150, 400, 1000, 2000)), random.choice((20, 60, 150, 300))
    lengths = _lengths(random, prompt, output)
    fault = None if random.random() < 0.33 else random.choice(FAULTS)
    if fault == "prefill_interference":
        lengths = "prompt=bimodal prompt.short=100 prompt.long=6000 prompt.ratio=1:1 output=150"
    whole = capacity(device, lengths, config)
    rate, settings = whole * random.uniform(0.25, 0.6), {}
    short = f"prompt={min(prompt, 400)} output=32"
    load = f"arrivals=poisson arrivals.rate={rate:.4f} count=80 {lengths}"
    match fault:
        case "slots_short":
            config["max_num_seqs"] = 2
        case "preemption_thrash":
            config["watermark"] = 0.0
            settings = {"num_kv_blocks": max(60, int((1.6 * prompt + 4 * output) / 16 * 2.2))}
            load = load.replace(f"{rate:.4f}", f"{0.8 * whole:.4f}")
        case "prefill_interference":
            config |= {"max_num_batched_tokens": 8192, "enable_chunked_prefill": False}
        case "straggler_waste":
            config["policy"] = "static"
            tail = f"output=exponential output.mean={max(60, output)} output.cap=600"
            load = f"arrivals=burst arrivals.size=64 prompt={min(prompt, 400)} {tail}"
        case "waits_to_fill":
            config |= {"policy": "static", "batch_size": 16}
            load = f"arrivals=poisson arrivals.rate={0.1 * whole:.4f} count=96 {short}"
        case "delay_too_long":
            config |= {"policy": "dynamic", "max_batch_size": 16, "max_queue_delay": int(60 * SECOND / whole)}
            load = f"arrivals=poisson arrivals.rate={0.1 * whole:.4f} count=80 {short}"
        case "reservation_too_large":
            config["kv_reservation"] = "model_len"
            settings = {"num_kv_blocks": 3 * 8192 // 16}
            load = load.replace(f"{rate:.4f}", f"{0.8 * whole:.4f}")
        case "overload":
            load = f"arrivals=poisson arrivals.rate={3 * whole:.4f} count=160 {lengths}"
        case "client_concurrency":
            load = f"arrivals=closed arrivals.users=3 count=40 {lengths}"
    return Planted(str(number), fault, f"{load} seed={random.randrange(1000)}", config, device, settings)


def _lengths(random: Random, prompt: int, output: int) -> str:
    prompts = (
        f"prompt={prompt}",
        f"prompt=lognormal prompt.median={prompt} prompt.sigma=0.6 prompt.max={3 * prompt}",
        f"prompt=uniform prompt.min={prompt // 2} prompt.max={3 * prompt // 2}",
    )
    outputs = (
        f"output={output}",
        f"output=exponential output.mean={output} output.cap={4 * output} output.min=4",
        f"output=uniform output.min={output // 2} output.max={3 * output // 2}",
    )
    return f"{random.choice(prompts)} {random.choice(outputs)}"


def capacity(device: str, lengths: str, config: Mapping[str, Any]) -> float:
    """Requests a second of a burst of 80."""
    burst = Planted("burst", None, f"arrivals=burst arrivals.size=80 {lengths} seed=1", config, device).make()
    return 80e9 / max(trace.end for trace in burst.traces)


def told(planted: Planted, found: Diagnosis) -> str:
    """A miss, with what it was judged by."""
    facts = found.facts
    rules = ", ".join(f"{one.rule} {one.weight:.2f}" for one in found.findings if not one.note) or "healthy"
    figures = {
        name: getattr(facts, name)
        for name in ("busy", "kv_peak", "waiting_mean", "running_mean", "itl_p50", "itl_p99", "queue_mean")
    }
    shown = ", ".join(f"{name} {value:.3g}" for name, value in figures.items() if value is not None)
    where = f"{planted.device}, steps of {planted.config['max_num_batched_tokens']}"
    return f"{planted.cause or 'healthy'} -> {rules} ({where}; {shown})"


def main() -> int:
    """Draw, diagnose, count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--count", type=int, default=100)
    arguments = parser.parse_args()
    random, counts = Random(arguments.seed), Counter[tuple[str, bool]]()
    for number in range(arguments.count):
        planted = draw(random, number)
        found = diagnose(planted.make())
        first = found.first.rule if found.first is not None else "healthy"
        cause = planted.cause or "healthy"
        right = first in ALIKE.get(cause, {cause})
        counts[cause, right] += 1
        if not right:
            print(told(planted, found))
    for cause in sorted({cause for cause, _ in counts}):
        print(f"{cause}: {counts[cause, True]} of {counts[cause, True] + counts[cause, False]}")
    sick = {
        right: sum(n for (cause, ok), n in counts.items() if ok is right and cause != "healthy")
        for right in (True, False)
    }
    print(f"sick: {sick[True]} of {sick[True] + sick[False]} named first")
    return 0


if __name__ == "__main__":
    sys.exit(main())
