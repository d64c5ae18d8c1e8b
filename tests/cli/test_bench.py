import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chairlift.cli.main import main
from chairlift.lab.runs.store import RunStore
from chairlift.records.client_metrics import CLIENT_METRICS
from chairlift.records.reader import Run
from chairlift.records.tools import TOOLS

LOAD = ["name=three", "arrivals=closed", "arrivals.users=1", "prompt=8", "output=3", "count=3"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that only sends, three chunks an answer."""
    command = [sys.executable, "-m", "chairlift.lab.client.null_server", "--chunks", "3", "--interval", "0.002"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def bench(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """Exit code and standard output."""
    code = main(["bench", *argv])
    return code, capsys.readouterr().out


def test_a_run_is_printed_and_kept(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the target and the load are, every figure, and where the run lies."""
    code, out = bench(capsys, url, "--set", *LOAD, "--runs", str(tmp_path), "--ttft-limit", "1h")
    [entry] = RunStore(tmp_path)

    assert code in {0, 1}  # a busy machine may make the client the bottleneck
    assert "3 requests scheduled, 3 answered, none failed" in out
    assert "3 requests, longest prompt + max_tokens 11" in out
    assert "goodput 1: 3 of 3 scheduled met the limits" in out
    assert f"kept in {entry.folder}" in out
    assert all(one.name in out for one in CLIENT_METRICS)
    assert entry.complete
    assert entry.name.endswith("-three")


@pytest.mark.parametrize("tool", TOOLS)
def test_the_same_run_by_another_tools_words(
    tool: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside ours, with where the definitions were read."""
    _, out = bench(capsys, url, "--set", *LOAD, "--runs", str(tmp_path), "--as", tool)

    assert f"by the definitions of {tool}: 3 successful, 0 failed" in out
    assert "source: " in out


def test_json_is_the_manifest(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing else is on standard output; secrets are not in it."""
    argv = [url, "--set", *LOAD, "--runs", str(tmp_path), "--json", "--as", "vllm", "--definitions", "--api-key", "XY"]
    _, out = bench(capsys, *argv)
    told: dict[str, Any] = json.loads(out)

    assert told["results"]["summary"]["requests"]["answered"] == 3
    assert told["as"]["tool"] == "vllm"
    assert "ttft_ms" in told["as"]["metrics"]
    assert "ttft_from_schedule" in told["definitions"]
    assert "XY" not in out
    assert "XY" not in (Path(told["run"]) / "manifest.json").read_text()


def test_a_failed_request_is_exit_code_1(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run cut by its time limit has requests that were not answered."""
    slow = [*LOAD, "arrivals.think=1h"]
    code, out = bench(capsys, url, "--set", *slow, "--runs", str(tmp_path), "--time-limit", "1us")

    assert code == 1
    assert "0 answered" in out


def test_a_file_can_be_changed_by_pairs(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the page on loads says."""
    file = tmp_path / "load.toml"
    file.write_text('count = 9\nprompt = 8\noutput = 3\n[arrivals]\nkind = "closed"\nusers = 1\n')
    _, out = bench(capsys, url, "--load", str(file), "--set", "count=2", "--runs", str(tmp_path / "runs"))

    assert "2 requests scheduled" in out


def test_definitions_need_no_target(capsys: pytest.CaptureFixture[str]) -> None:
    """Ours, or another tool's."""
    code, ours = bench(capsys, "--definitions")
    _, theirs = bench(capsys, "--definitions", "--as", "guidellm")

    assert code == 0
    assert "ttft_from_schedule\n    [s] from the moment the load says" in ours
    assert "time_per_output_token_ms\n" in theirs
    assert "goodput" not in theirs


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "TARGET is missing"),
        (["http://x"], "there is no load: give --load FILE"),
        (["http://x", "--set", "arrivals=poison"], "poison"),
        (["http://x", "--set", *LOAD, "--max-num-seqs", "4"], "--max-num-seqs cannot be set: http://x is a server"),
        (["m", "--set", *LOAD, "--api", "chat"], "--api cannot be set: m is a model"),
        (["http://x", "--set", *LOAD, "--ttft-limit", "0"], "--ttft-limit is 0 ns"),
        (["http://127.0.0.1:1", "--set", *LOAD], "http://127.0.0.1:1"),
    ],
)
def test_what_cannot_run_is_refused(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, the reason on standard error, and nothing is kept."""
    assert main(["bench", *argv]) == 2

    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


@pytest.mark.model
def test_a_model_is_a_target_too(demo_model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Through the same code, with the engine's own records beside the client's."""
    argv = [str(demo_model_path), "--set", *LOAD, "--runs", str(tmp_path), "--max-model-len", "64"]
    _, out = bench(capsys, *argv)
    [entry] = RunStore(tmp_path)

    assert "3 answered" in out
    assert sum(record.output_tokens for record in Run(entry.folder / "engine").requests()) == 9


SIMULATED = ["sim:h100-sxm/llama-3.1-8b", "--set", *LOAD]


def test_few_values_have_few_percentiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of three values there is a median and a maximum; shares are in per cent."""
    code, out = bench(capsys, *SIMULATED, "--runs", str(tmp_path))

    [line] = [line for line in out.splitlines() if line.startswith("ttft_from_schedule [s]")]
    assert code == 0
    assert line.split()[4:8] == ["-", "-", "-", "-"]
    assert "100% of its tokens useful" in out


def test_why_requests_failed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first of each kind, in the target's words; nothing was in flight, so there is no window."""
    code, out = bench(capsys, *SIMULATED, "--runs", str(tmp_path), "--num-kv-blocks", "1", "--block-size", "4")

    assert code == 1
    assert "3 requests scheduled, 0 answered, 3 rejected" in out
    assert "rejected: prompt of 8 tokens + max_tokens 3 needs 3 KV blocks of 4" in out
    assert "in flight" not in out.partition("rejected: ")[2]


def test_a_run_of_which_nothing_counts_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was measured."""
    code, out = bench(capsys, *SIMULATED, "warmup_time=10h", "--runs", str(tmp_path))

    assert code == 1
    assert "no request counts, so there are no figures" in out


def test_a_time_limit_of_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is loaded, and nothing is kept."""
    code, _ = bench(capsys, *SIMULATED, "--runs", str(tmp_path / "runs"), "--time-limit", "0")

    assert code == 2
    assert not (tmp_path / "runs").exists()
