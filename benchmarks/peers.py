"""Chairlift beside OpenVINO GenAI's ContinuousBatchingPipeline: the same f32 model, threads and loads, taking turns.

    make setup-peers
    python -m benchmarks.peers [--rounds 7] [--loads W1,W2,W3,W4] [--json FILE]

Each engine is a process of its own, loaded once and warmed up, then told which load to run; meanwhile the others sleep.
In every round each engine runs each load once, in an order that turns round from one round to the next. Compared is
within a round: the ratio of GenAI's time to Chairlift's, its median over the rounds and the sign test's interval. Above
1 Chairlift is faster. benchmarks/_loads.py has the loads.

Equal for all: greedy, end-of-sequence tokens ignored, exact answer lengths (checked), prefix caches off, two threads,
32 sequences at most, a KV pool that preempts nobody.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks._loads import LOADS
from benchmarks._machine import RateMeter, Rates, describe, load_floor
from benchmarks._pipe import ROOT, EngineProcess, Turn
from benchmarks._statistics import MedianInterval, median_interval, ratios
from benchmarks._turns import alone
from chairlift.core.work import ModelShape

THREADS = 2
HF_MODEL = ROOT / ".models" / "peers" / "hf-f32"
OV_MODEL = ROOT / ".models" / "peers" / "ov-f32"
GENAI_PYTHON = ROOT / ".venv-peers-genai" / "bin" / "python"
LOGS = ROOT / "build" / "peers"


@dataclass(frozen=True, slots=True)
class Contender:
    """One engine with its settings."""

    name: str
    module: str
    settings: dict[str, Any]
    says: str
    """What it is, for the table."""

    def command(self) -> list[str]:
        python = sys.executable if self.module == "benchmarks._chairlift" else str(GENAI_PYTHON)
        return [python, "-m", self.module, json.dumps(self.settings)]


def chairlift(name: str, says: str, **settings: Any) -> Contender:
    """Chairlift under continuous; what is not given keeps its default."""
    return Contender(
        name, "benchmarks._chairlift", {"model": str(HF_MODEL), "threads": THREADS, **settings}, f"Chairlift, {says}"
    )


def genai(name: str, says: str, **settings: Any) -> Contender:
    """GenAI's pipeline; an absent kv_cache or precision is its own default."""
    return Contender(
        name,
        "benchmarks._genai",
        {"model": str(OV_MODEL), "threads": THREADS, "budget": 256, **settings},
        f"GenAI, {says}",
    )


CONTENDERS = {
    one.name: one
    for one in (
        chairlift("chairlift", "defaults (KV f16, 512 tokens a step)"),
        chairlift("chairlift-256", "256 tokens a step", max_num_batched_tokens=256),
        chairlift("chairlift-1024", "1,024 tokens a step", max_num_batched_tokens=1024),
        chairlift("chairlift-f32", "KV f32", kv_cache_dtype="f32"),
        genai("genai", "equal terms (KV f16, f32 products), 256 tokens a step", kv_cache="f16", precision="f32"),
        genai("genai-512", "equal terms, 512 tokens a step", kv_cache="f16", precision="f32", budget=512),
        genai("genai-kv-f32", "KV f32, f32 products", kv_cache="f32", precision="f32"),
        genai("genai-kv-default", "its default KV (u8), f32 products", precision="f32"),
        genai("genai-default", "all its defaults (KV u8; bf16 products where the CPU has them)"),
    )
}
DEFAULT = ("chairlift", "chairlift-256", "genai", "genai-kv-default", "genai-default")


def run_rounds(
    engines: Sequence[EngineProcess], loads: Sequence[str], rounds: int, meter: RateMeter, lock: Path | None
) -> dict[str, dict[str, list[Turn]]]:
    """Load -> engine -> its turns, in the order of the rounds.

    Raises:
        ValueError: an engine generated another number of tokens than asked for.
    """
    turns: dict[str, dict[str, list[Turn]]] = {load: {engine.name: [] for engine in engines} for load in loads}
    for number in range(rounds):
        with alone(lock):
            meter.measure()
            for load in loads:
                wanted = [job.answer for job in LOADS[load]()]
                for engine in engines if number % 2 == 0 else reversed(engines):
                    turn = engine.run(load)
                    if turn.result["counts"] != wanted:
                        raise ValueError(f"{engine.name} generated {turn.result['counts']} in {load}, not {wanted}.")
                    turns[load][engine.name].append(turn)
                    print(
                        f"round {number + 1}, {load}, {engine.name}: {turn.wall:.2f} s ({turn.others:.1f} cores busy "
                        "elsewhere)",
                        file=sys.stderr,
                        flush=True,
                    )
    return turns


def figure(load: str, turn: Turn) -> float:
    """What a load is about: W1 decoded tokens a second after the first; W2, W3 output tokens a second; W4 prompt tokens
    a second.
    """
    jobs = LOADS[load]()
    if load == "W1":
        return float((jobs[0].answer - 1) / (turn.wall - turn.result["first"]))
    tokens = sum(len(job.prompt) for job in jobs) if load == "W4" else sum(job.answer for job in jobs)
    return float(tokens / turn.wall)


@dataclass(frozen=True, slots=True)
class Row:
    """One engine on one load."""

    load: str
    engine: str
    figure: MedianInterval
    first_token: MedianInterval
    """Seconds."""
    wall: MedianInterval
    floor: float
    """Share of its wall time that the arithmetic floor takes, in the round in which it was fastest."""
    others: float
    """Cores busy elsewhere, mean."""


def rows_of(turns: dict[str, dict[str, list[Turn]]], rates: Rates, shape: ModelShape) -> Iterator[Row]:
    """The tables, load by load."""
    for load, by_engine in turns.items():
        floor = load_floor(rates, shape, [(len(job.prompt), job.answer) for job in LOADS[load]()])
        for engine, runs in by_engine.items():
            yield Row(
                load,
                engine,
                median_interval([figure(load, run) for run in runs]),
                median_interval([run.result["first"] for run in runs]),
                median_interval([run.wall for run in runs]),
                floor / min(run.wall for run in runs),
                sum(run.others for run in runs) / len(runs),
            )


def compare(turns: dict[str, dict[str, list[Turn]]], ours: str, theirs: str) -> Iterator[tuple[str, MedianInterval]]:
    """Load by load, their time over ours, paired; above 1 ours is faster."""
    for load, by_engine in turns.items():
        pair = ratios([run.wall for run in by_engine[theirs]], [run.wall for run in by_engine[ours]])
        yield load, median_interval(pair)


def print_report(turns: dict[str, dict[str, list[Turn]]], rates: Rates, shape: ModelShape) -> None:
    """The tables, as docs/performance.md has them."""
    print("\n| load | engine | tokens/s | first token, ms | wall, s | floor / fastest wall | busy elsewhere |")
    print("|---|---|---|---|---|---|---|")
    for row in rows_of(turns, rates, shape):
        print(
            f"| {row.load} | {row.engine} | {row.figure.median:.1f} [{row.figure.low:.1f}, {row.figure.high:.1f}] "
            f"| {1000 * row.first_token.median:.0f} | {row.wall.median:.2f} | {100 * row.floor:.0f}% "
            f"| {row.others:.1f} |"
        )
    engines = list(next(iter(turns.values())))
    ours, theirs = ([e for e in engines if e.startswith("genai") is is_peer] for is_peer in (False, True))
    print("\n| load | " + " | ".join(f"{t} / {o}" for o in ours for t in theirs) + " |")
    print("|---|" + "---|" * (len(ours) * len(theirs)))
    columns = [dict(compare(turns, o, t)) for o in ours for t in theirs]
    for load in turns:
        print(f"| {load} | " + " | ".join(str(column[load]) for column in columns) + " |")


def print_host_share(turns: dict[str, dict[str, list[Turn]]], engine: str) -> None:
    """Host time in steps of 32 decodes and of one."""
    for rows in (32, 1):
        shares = [
            share
            for by_engine in turns.values()
            for run in by_engine[engine]
            if (share := run.result[f"host_share_{rows}"]) is not None
        ]
        if shares:
            interval = median_interval([100 * share for share in shares])
            print(
                f"{engine}: host share of a step of {rows} decodes: {interval.median:.1f}% "
                f"[{interval.low:.1f}, {interval.high:.1f}]"
            )


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--loads", default="W1,W2,W3,W4")
    parser.add_argument("--engines", default=",".join(DEFAULT), help=f"of {', '.join(CONTENDERS)}")
    parser.add_argument("--lock", type=Path, help="a file to lock for each round, where several measure on one machine")
    parser.add_argument("--json", type=Path, help="write every turn there")
    return parser.parse_args()


def main() -> int:
    """Run and print."""
    arguments = parse()
    if not (GENAI_PYTHON.exists() and OV_MODEL.exists() and HF_MODEL.exists()):
        print("peers: nothing to compare with; run `make setup-peers` first.", file=sys.stderr)
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    chosen = [CONTENDERS[name] for name in arguments.engines.split(",")]
    machine, meter, loads = describe(), RateMeter(THREADS), arguments.loads.split(",")
    with ExitStack() as stack:
        engines = [
            stack.enter_context(EngineProcess(one.name, one.command(), LOGS / f"{one.name}.log")) for one in chosen
        ]
        turns = run_rounds(engines, loads, arguments.rounds, meter, arguments.lock)
        memory = {engine.name: engine.peak_memory() for engine in engines}
        about = {engine.name: engine.about for engine in engines}
    rates = meter.measure()
    shape = next(ModelShape(**facts["shape"]) for facts in about.values() if facts.get("shape"))
    print(f"{time.strftime('%Y-%m-%d')}, {machine}; {rates}; load average {os.getloadavg()[1]:.1f}")
    for one in chosen:
        facts = about[one.name]
        print(
            f"{one.name}: {one.says}; {facts['engine']} {facts['version']} on OpenVINO {facts['openvino']}; peak "
            f"memory {memory[one.name] / 2**20:,.0f} MiB"
        )
    print_report(turns, rates, shape)
    print()
    for one in chosen:
        if one.module == "benchmarks._chairlift":
            print_host_share(turns, one.name)
    if arguments.json:
        record = {
            "machine": asdict(machine),
            "rates": asdict(rates),
            "about": about,
            "turns": {
                load: {
                    name: [
                        {"others": run.others, **{k: v for k, v in run.result.items() if k != "tokens"}} for run in runs
                    ]
                    for name, runs in by_engine.items()
                }
                for load, by_engine in turns.items()
            },
        }
        arguments.json.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
