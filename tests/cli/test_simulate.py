import json
from pathlib import Path

import pytest

from chairlift.cli.main import main

DEVICE = ["simulate", "--device", "h100", "--model", "llama-3.1-8b"]
LOAD = ["--set", "arrivals=poisson", "arrivals.rate=20", "prompt=60", "output=20", "count=30"]


def test_a_line_for_each_policy(capsys: pytest.CaptureFixture[str]) -> None:
    """With where the device's times come from, the load, and the units."""
    assert main([*DEVICE, *LOAD]) == 0
    text = capsys.readouterr().out

    assert "h100-sxm/llama-3.1-8b is analytic, not calibrated" in text
    assert "30 requests, longest prompt + max_tokens 80" in text
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("policy"))
    assert [line.split()[0] for line in lines[head + 1 : head + 4]] == ["static", "dynamic", "continuous"]
    assert all("30/30" in line for line in lines[head + 1 : head + 4])
    assert "Times in seconds" in text


def test_a_sweep_over_any_setting(capsys: pytest.CaptureFixture[str]) -> None:
    """Durations, switches and second names are read as their flags; --json has plain values."""
    sweep = ["--sweep", "max_queue_delay=0,50ms", "enable-prefix-caching=on,off", "--policy", "dynamic", "--jobs", "1"]
    assert main([*DEVICE, *LOAD, *sweep, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)

    assert [one["settings"]["max_queue_delay"] for one in told["simulations"]] == [0, 0, 50_000_000, 50_000_000]
    assert [one["settings"]["enable_prefix_caching"] for one in told["simulations"]] == [True, False] * 2
    assert {one["settings"]["policy"] for one in told["simulations"]} == {"dynamic"}
    at_once, too, waiting, _ = (one["figures"] for one in told["simulations"])
    assert at_once == too != waiting


def test_policies_can_be_swept_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Then there are no others."""
    assert main([*DEVICE, *LOAD, "--sweep", "policy=static,continuous", "--jobs", "1", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert [one["settings"]["policy"] for one in told["simulations"]] == ["static", "continuous"]


def test_what_went_wrong_is_said_and_the_exit_code_tells(capsys: pytest.CaptureFixture[str]) -> None:
    """Settings that cannot be, and requests that were refused; the others are simulated."""
    sweep = ["--sweep", "max_model_len=70,80", "--policy", "continuous", "--jobs", "1"]
    assert main([*DEVICE, *LOAD, *sweep]) == 1
    assert "max_model_len 70: 30 refused" in capsys.readouterr().out

    assert main([*DEVICE, *LOAD, "--sweep", "max_num_seqs=32,4096", "--policy", "continuous", "--jobs", "1"]) == 1
    text = capsys.readouterr().out
    assert "max_num_seqs 4096: --max-num-batched-tokens is 512" in text
    assert "30/30" in text


@pytest.mark.parametrize("setting", ["--block-size", "--num-kv-blocks"])
def test_where_nothing_could_be_simulated_the_exit_code_says_so(
    setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """2, with the setting that is at fault."""
    assert main([*DEVICE, *LOAD, setting, "0", "--jobs", "1"]) == 2

    assert f"policy static: {setting} is 0; it must be at least 1." in capsys.readouterr().out


def test_a_load_of_which_nothing_counts_is_something_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    """Its table has no figures."""
    assert main([*DEVICE, *LOAD, "warmup_time=10h", "--jobs", "1"]) == 1

    assert "0/0" in capsys.readouterr().out


def test_runs_can_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One folder for each."""
    assert main([*DEVICE, *LOAD, "--runs", str(tmp_path), "--jobs", "1"]) == 0

    assert len(list(tmp_path.iterdir())) == 3
    assert f"kept in {tmp_path}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["simulate", *LOAD], "--device is missing"),
        (["simulate", "--device", "h100", *LOAD], "needs a model"),
        (DEVICE, "there is no load"),
        ([*DEVICE, *LOAD, "--sweep", "threads=1,2"], "--sweep threads=1,2: give SETTING"),
        ([*DEVICE, *LOAD, "--sweep", "max_num_seqs=1,x"], "--max-num-seqs takes a whole number"),
        ([*DEVICE, *LOAD, "--sweep", "enable_prefix_caching=1,0"], "takes on or off"),
        ([*DEVICE, *LOAD, "--sweep", "max_num_seqs=8,8"], "a value is there twice"),
        ([*DEVICE, *LOAD, "--sweep", "max_num_seqs=8", "max-num-seqs=9"], "has max_num_seqs twice"),
        ([*DEVICE, *LOAD, "--sweep", "max_num_seqs=8", "--max-num-seqs", "9"], "beside --sweep max_num_seqs"),
        ([*DEVICE, *LOAD, "--jobs", "0"], "--jobs is 0"),
        ([*DEVICE, *LOAD, "--time-limit", "0"], "--time-limit is 0 ns"),
        ([*DEVICE, *LOAD, "--tensor-parallel-size", "99"], "--tensor-parallel-size is 99"),
    ],
)
def test_what_cannot_run_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason and the way out."""
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
