import json
from pathlib import Path

import pytest

from chairlift.cli.main import main

QUICK = ["--trials", "8", "--requests", "30", "--rounds", "2", "--workers", "1"]
BURST = ["--set", "arrivals=burst", "arrivals.size=24", "prompt=20", "output=12"]
DEVICE = ["--device", "l4/smollm2-135m"]


def tune(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    code = main(["tune", *argv, *QUICK])
    out, err = capsys.readouterr()
    return code, out, err


def test_settings_with_their_reasons_the_order_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    """The walk first where it is asked for, then the settings, each parameter, and a framework's words."""
    code, out, _ = tune(capsys, *BURST, *DEVICE, "--itl-p99", "20ms", "--explain", "--for", "vllm")

    assert code == 0
    for words in ("one request alone", "--policy continuous --max-num-seqs", "what binds it", "vllm serve"):
        assert words in out
    assert out.index("one request alone") < out.index("what binds it") < out.index("vllm serve")


def test_the_best_are_verified_on_a_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A simulated one is predicted exactly; its runs are kept; all of it as JSON."""
    argv = ["--policy", "static", "--verify", "sim:l4/smollm2-135m", "--repeats", "2", "--keep", str(tmp_path / "runs")]
    code, out, _ = tune(capsys, *BURST, *DEVICE, *argv, "--json")
    told = json.loads(out)

    assert code == 0
    assert told["policy"] == "static"
    assert told["verified"]["better"] is True
    assert len(list((tmp_path / "runs").glob("*tune*/*"))) == 2 * len(told["verified"]["candidates"])


def test_limits_that_nobody_keeps_are_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1."""
    code, out, _ = tune(capsys, *BURST, *DEVICE, "--e2e-p99", "1ms")

    assert code == 1
    assert "No settings keep every limit" in out


def test_a_search_goes_on_where_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From its file."""
    storage = ["--storage", str(tmp_path / "search.log")]
    tune(capsys, *BURST, *DEVICE, *storage)
    _, out, _ = tune(capsys, *BURST, *DEVICE, *storage)

    assert "Search: 16 trials, 8 of them from before" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([*BURST, *DEVICE, "--policy", "dynamo"], "did you mean dynamic"),
        ([*BURST, *DEVICE, "--verify", "http://localhost:1"], "server with settings of its own"),
        (DEVICE, "--load FILE, --trace FILE, --run FOLDER"),
    ],
)
def test_what_is_wrong_is_said(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the flag and the way out."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    code, _, err = tune(capsys, *argv)

    assert code == 2
    assert message in err
