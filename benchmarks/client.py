"""How good the client is, on a server that does nothing but send: 1,000 streams at once, 10,000 chunks a second.

    python -m benchmarks.client [--rounds 5] [--guidellm PROGRAM] [--together] [--json FILE]

Each tool drives the null server (chairlift.lab.client.null_server, a process of its own) with evenly spaced requests,
whose answers are chunks at a fixed cadence. Tools take turns. What is shown of each, over the requests that came when
all streams were there, medians over the rounds:

    behind      how far behind its even schedule a request reached the server, by the server's clock; the most punctual
                one is 0. Nobody's own word is taken for it.
    send lag    the same by the tool's own word: when it began a request, less when the request was due
    first off   measured time to the first token (from sending), less what the server really took: connecting, writing,
                and whatever the client needed to notice the chunk
    gap off     measured time between chunks, less the cadence: what the client adds to every time between tokens
    streams     most at a time; each has a chunk every interval
    answered    requests with a whole answer; GuideLLM cuts what is under way at the end
    CPU s       of the tool's processes, start-up included
    server late by how much the server itself missed its cadence: part of everything above
    pressure    share of the run in which something on the machine was ready and found no core: a run with much of it
                measures the machine, not the tool

Aim: the 99th percentile of the send lag under 10 ms, from one process. GuideLLM is found at .venv-guidellm/bin/guidellm
or --guidellm; make it with `python -m venv .venv-guidellm && .venv-guidellm/bin/pip install guidellm` (it needs torch).
It runs with one worker process and with as many as it likes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from benchmarks._statistics import median_interval
from chairlift.engine.collector import calm_collector
from chairlift.lab.client.health import PRESSURE, read_stalled
from chairlift.lab.client.verdict import judge
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.targets.url import UrlTarget
from chairlift.records.client import HealthSample, RequestTrace
from chairlift.records.manifest import machine
from chairlift.records.metrics import percentile

GUIDELLM = Path(".venv-guidellm/bin/guidellm")
MILLISECOND = 1e6


@dataclass(frozen=True, slots=True)
class Shape:
    """What is asked of the tools."""

    rate: int = 100
    """Requests a second."""
    chunks: int = 100
    """Of an answer."""
    interval: float = 0.1
    """Seconds between two."""
    seconds: int = 25
    """How long requests are sent."""

    @property
    def ramp(self) -> float:
        """Seconds until as many streams end as begin."""
        return self.chunks * self.interval

    @property
    def streams(self) -> int:
        return round(self.rate * self.ramp)


@dataclass(frozen=True, slots=True)
class Own:
    """What a tool says of itself; milliseconds."""

    answered: int
    lags: list[float]
    """Of the requests in the window."""
    firsts: list[float]
    """Times to first token, from sending."""
    gaps: list[float]
    """Times between chunks; empty where the tool keeps only means."""
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """One run of one tool; milliseconds unless said otherwise."""

    tool: str
    requests: int
    answered: int
    streams: int
    behind_p50: float
    behind_p99: float
    behind_max: float
    lag_p50: float | None
    lag_p99: float | None
    lag_max: float | None
    first_off_p50: float | None
    first_off_p99: float | None
    gap_off_p01: float | None
    gap_off_p99: float | None
    cpu_seconds: float
    server_late_p99: float
    pressure: float
    verdict: str


@contextmanager
def null_server(shape: Shape, *, together: bool) -> Iterator[str]:
    """The server's URL."""
    command = [sys.executable, "-m", "chairlift.lab.client.null_server", "--interval", str(shape.interval)]
    command += ["--chunks", str(shape.chunks), *(["--together"] if together else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the null server has no pipes.")
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def drive_chairlift(url: str, shape: Shape, folder: Path) -> Own:
    """In a process of its own, as the tools beside it."""
    out = folder / "chairlift.json"
    command = [sys.executable, "-m", "benchmarks.client", "--drive", url, "--json", str(out)]
    subprocess.run([*command, "--shape", json.dumps(asdict(shape))], check=True)
    return Own(**json.loads(out.read_text()))


async def drive(url: str, shape: Shape) -> Own:
    """What the process does."""
    arrivals = ["arrivals=constant", f"arrivals.rate={shape.rate}", f"duration={shape.seconds}s"]
    load = load_from_pairs([*arrivals, "prompt=64", f"output={shape.chunks}"])
    target = UrlTarget(url)
    await target.open()
    look(url)  # forget the probes
    traces: list[RequestTrace] = []
    health: list[HealthSample] = []
    calm_collector()
    async with aclosing(target.run(Schedule(load))) as observations:
        async for one in observations:
            if isinstance(one, RequestTrace):
                traces.append(one)
            elif isinstance(one, HealthSample):
                health.append(one)
    verdict = judge(traces, health)
    steady = [trace for trace in traces if trace.scheduled >= shape.ramp * 1e9]
    return Own(
        answered=sum(trace.ok for trace in traces),
        lags=[trace.send_lag / MILLISECOND for trace in steady if trace.send_lag is not None],
        firsts=[
            (trace.first_content - trace.sent) / MILLISECOND
            for trace in steady
            if trace.first_content is not None and trace.sent is not None
        ],
        gaps=[
            (after - before) / MILLISECOND
            for trace in steady
            for before, after in itertools.pairwise(trace.chunks.times)
        ],
        verdict="; ".join(f"{one.name} {one.value:g}" for one in verdict.reasons if one.value is not None) or "not it",
    )


def drive_guidellm(program: Path, url: str, shape: Shape, folder: Path, workers: int | None) -> Own:
    """With its own options, and prompts from a file, so that it needs no tokenizer."""
    prompts, out = folder / "prompts.jsonl", folder / "guidellm.json"
    row = {"prompt": "word " * 64, "output_tokens_count": shape.chunks}
    count = shape.rate * shape.seconds * 2
    prompts.write_text("".join(json.dumps({**row, "prompt": f"{n} {row['prompt']}"}) + "\n" for n in range(count)))
    command = [str(program), "run", "--disable-console"]
    command += ["--backend", f"kind=openai_http,target={url},model=null-model,request_format=/v1/completions"]
    command += ["--profile", f"kind=constant,rate={shape.rate}"]
    command += ["--constraint", f"kind=max_duration,seconds={shape.seconds}"]
    command += ["--data", f"kind=json_file,path={prompts}", "--output", f"kind=json,path={out}"]
    limit = {} if workers is None else {"GUIDELLM__MAX_WORKER_PROCESSES": str(workers)}
    with (folder / "guidellm.log").open("w") as log:
        subprocess.run(
            command, check=True, cwd=folder, env={**os.environ, "HF_HUB_OFFLINE": "1", **limit}, stdout=log, stderr=log
        )
    [benchmark] = json.loads(out.read_text())["benchmarks"]
    requests = benchmark["requests"]["successful"]
    # Those that were answered before the end are those that began before its last `ramp` seconds.
    began = min((request["request_start_time"] for request in requests), default=0.0)
    steady = [one for one in requests if one["request_start_time"] - began >= shape.ramp]
    return Own(
        answered=len(requests),
        lags=[one["request_dispatch_delay"] * 1000 for one in steady],
        firsts=[one["time_to_first_token_ms"] for one in steady],
        gaps=[],
    )


def look(url: str) -> Mapping[str, Any]:
    """The server's record since the last look."""
    with urllib.request.urlopen(f"{url}/null/record", timeout=60) as response:  # noqa: S310 - our own server
        record: Mapping[str, Any] = json.load(response)
        return record


def cpu_seconds() -> float:
    """Of all processes that were waited for so far."""
    times = os.times()
    return times.children_user + times.children_system


def measure(tool: str, shape: Shape, program: Path, folder: Path, *, together: bool) -> Result:
    """One run."""
    with null_server(shape, together=together) as url:
        look(url)
        before, begun, stalled = cpu_seconds(), time.monotonic_ns(), read_stalled(PRESSURE)
        if tool == "chairlift":
            own = drive_chairlift(url, shape, folder)
        else:
            own = drive_guidellm(program, url, shape, folder, 1 if tool.endswith("1") else None)
        cpu = cpu_seconds() - before
        stalled = (read_stalled(PRESSURE) or 0) - (stalled or 0)
        pressure = stalled / (time.monotonic_ns() - begun)
        record = look(url)
    behind = behind_schedule(record["arrivals"], shape)
    firsts = [first - shape.interval * 1000 for first in own.firsts]
    gaps = sorted(gap - shape.interval * 1000 for gap in own.gaps)
    return Result(
        tool=tool,
        requests=len(record["arrivals"]),
        answered=own.answered,
        streams=record["streams"],
        behind_p50=at(behind, 50),
        behind_p99=at(behind, 99),
        behind_max=max(behind),
        lag_p50=perhaps(own.lags, 50),
        lag_p99=perhaps(own.lags, 99),
        lag_max=perhaps(own.lags, 100),
        first_off_p50=perhaps(firsts, 50),
        first_off_p99=perhaps(firsts, 99),
        gap_off_p01=perhaps(gaps, 1),
        gap_off_p99=perhaps(gaps, 99),
        cpu_seconds=cpu,
        server_late_p99=at(record["lateness"], 99) / MILLISECOND,
        pressure=pressure,
        verdict=own.verdict,
    )


def behind_schedule(arrivals: Sequence[int], shape: Shape) -> list[float]:
    """Milliseconds by which each request in the window came after its place on an even grid.

    The grid is laid so that the most punctual of all requests is on it. A tool that falls behind stays behind.
    """
    offsets = [time - number * 1e9 / shape.rate for number, time in enumerate(sorted(arrivals))]
    first = min(offsets)
    return [(offset - first) / MILLISECOND for offset in offsets[round(shape.ramp * shape.rate) :]]


def at(values: Sequence[float], percent: float) -> float:
    """A percentile."""
    return percentile(sorted(values), percent)


def perhaps(values: Sequence[float], percent: float) -> float | None:
    """A percentile; None where a tool had no whole answer in the window."""
    return at(values, percent) if values else None


COLUMNS = {
    "behind p50": "behind_p50",
    "p99": "behind_p99",
    "max": "behind_max",
    "send lag p50": "lag_p50",
    "p99 ": "lag_p99",
    "max ": "lag_max",
    "first off p50": "first_off_p50",
    "p99  ": "first_off_p99",
    "gap off p1": "gap_off_p01",
    "p99   ": "gap_off_p99",
    "streams": "streams",
    "answered": "answered",
    "CPU s": "cpu_seconds",
    "server late p99": "server_late_p99",
    "pressure": "pressure",
}


def show(results: Sequence[Result], tools: Sequence[str]) -> None:
    """Medians over the rounds, and how sure they are where there is an aim."""
    print(f"{'tool':<14}" + "".join(f"{title.strip():>{len(title) + 3}}" for title in COLUMNS))
    for tool in tools:
        own = [result for result in results if result.tool == tool]
        cells = []
        for title, name in COLUMNS.items():
            values = [value for result in own if (value := getattr(result, name)) is not None]
            cells.append(
                f"{median_interval(values).median:>{len(title) + 3}.{2 if name == 'pressure' else 1}f}"
                if values
                else " " * len(title) + "  -"
            )
        print(f"{tool:<14}" + "".join(cells))
    for tool in tools:
        own = [result for result in results if result.tool == tool]
        lags = [result.lag_p99 for result in own if result.lag_p99 is not None]
        print(
            f"{tool}: 99th percentile, ms: behind {median_interval([result.behind_p99 for result in own])}"
            + (f", send lag {median_interval(lags)}" if lags else "")
        )


def main() -> None:
    """Take turns, show the table, write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--guidellm", type=Path, default=GUIDELLM, help="its program, in an environment of its own")
    parser.add_argument("--together", action="store_true", help="all streams send at the same moment, as after a step")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    parser.add_argument("--shape", type=json.loads, default={}, help="fields of Shape, as JSON")
    arguments = parser.parse_args()
    shape = Shape(**arguments.shape)
    if arguments.drive:
        arguments.json.write_text(json.dumps(asdict(uvloop.run(drive(arguments.drive, shape)))))
        return
    tools = ["chairlift"]
    if arguments.guidellm.exists():
        tools += ["guidellm-1", "guidellm-n"]
    else:
        print(f"GuideLLM is not at {arguments.guidellm}: Chairlift alone. See the module's docstring.")
    what = machine()
    print(f"{what['processor']}, {what['cpus']} CPUs, Python {what['python']}")
    print(f"{shape.streams} streams, {shape.streams / shape.interval:.0f} chunks/s, {shape.rate} requests/s; ms")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds):
            for tool in tools[number % len(tools) :] + tools[: number % len(tools)]:
                result = measure(tool, shape, arguments.guidellm.absolute(), Path(folder), together=arguments.together)
                results.append(result)
                print(f"round {number + 1}: {result}", file=sys.stderr)
    show(results, tools)
    if arguments.json:
        facts = {"machine": what, "shape": asdict(shape), "together": arguments.together}
        arguments.json.write_text(json.dumps({**facts, "results": [asdict(one) for one in results]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
