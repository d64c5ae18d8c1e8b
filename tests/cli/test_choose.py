import argparse
import json
from pathlib import Path

import pytest

from chairlift.cli.advice_flags import read_load_flags
from chairlift.cli.main import main
from chairlift.lab.loads.describe import describe
from chairlift.lab.loads.schedule import Schedule

TRACE = Path(__file__).parent.parent / "advisor" / "choose" / "data" / "azure_code.csv"
QUICK = ["--requests", "30", "--rounds", "2", "--workers", "1"]
BURST = ["--set", "arrivals=burst", "arrivals.size=24", "prompt=20", "output=12"]
DEVICE = ["--device", "l4/smollm2-135m"]


def choose(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    code = main(["choose", *argv, *QUICK])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_trace_and_a_device_are_enough(capsys: pytest.CaptureFixture[str]) -> None:
    """The policy with its settings, the table, the reasons; what was assumed is said first; flags for a framework."""
    code, out, _ = choose(capsys, "--trace", str(TRACE), "--device", "h100-sxm", "--for", "vllm")

    assert code == 0
    assert "continuous batching: --policy continuous --max-num-seqs" in out
    for words in ("assumed: model: llama-3.1-8b", "dead rows", "Binding:", "Tail of the answers", "Confidence:"):
        assert words in out
    assert "--max-num-batched-tokens" in out.split("vllm serve")[1]


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Everything as plain values."""
    code, out, _ = choose(capsys, *BURST, *DEVICE, "--json")
    told = json.loads(out)

    assert code == 0
    assert told["policy"] == "static"
    assert told["settings"]["policy"] == "static"
    assert set(told["policies"]) == {"static", "dynamic", "continuous"}
    assert told["gaps"]["static"]["cost"] < 1.05
    assert told["targets"]["objective"] == "throughput"
    assert told["confidence"]["error"] == 0.3


def test_limits_that_nobody_keeps_are_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, and the one that comes closest."""
    code, out, _ = choose(capsys, *BURST, *DEVICE, "--e2e-p99", "1ms")

    assert code == 1
    assert "No policy keeps every limit" in out


def test_what_does_not_fit_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 and the memory's sum."""
    code, out, _ = choose(capsys, *BURST, "--device", "l4/llama-3.1-70b")

    assert code == 1
    assert "Nothing runs" in out
    assert "weights" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (BURST, "--device is missing"),
        (DEVICE, "--prompt and --output and --rate missing"),
        ([*DEVICE, "--prompt", "5"], "--output and --rate missing"),
        ([*BURST, *DEVICE, "--trace", "x.csv"], "are several loads"),
        ([*BURST, *DEVICE, "--target", "p99-e3e"], "did you mean p99-e2e"),
        ([*BURST, "--device", "h1000"], "unknown"),
        ([*BURST, *DEVICE, "--for", "vlm"], "did you mean vllm"),
    ],
)
def test_what_is_missing_or_wrong_is_said(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the flag and the way out."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    code, _, err = choose(capsys, *argv)

    assert code == 2
    assert message in err


def test_a_person_is_asked_three_questions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where nothing is given and somebody is there."""
    answers = iter(["300", "80", "2.5"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assumed: list[str] = []
    load = read_load_flags(argparse.Namespace(pairs=[]), tmp_path, assumed, lambda _: next(answers))

    assert describe(Schedule(load)).rate == pytest.approx(2.5, rel=0.2)
    assert "answers of 80 tokens" in assumed[0]
