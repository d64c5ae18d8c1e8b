import asyncio
import json
from pathlib import Path

import pytest

from chairlift.cli.main import main
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.runs.bench import Bench
from chairlift.lab.runs.store import RunStore
from chairlift.lab.targets.simulated import SimulatedTarget
from tests.lab.runs.making import write_run

LOAD = ["arrivals=burst", "arrivals.size=24", "prompt=64", "output=48"]


def doctor(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    capsys.readouterr()
    code = main(["doctor", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def bench(runs: Path, max_num_seqs: int) -> None:
    """A simulated run that is kept."""
    target = SimulatedTarget.load("h100-sxm/llama-3.1-8b", {"max_num_seqs": max_num_seqs})
    schedule = Schedule(load_from_pairs(LOAD))
    asyncio.run(Bench(target, schedule, RunStore(runs).new("burst")).run())


def test_a_sick_run_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the cause, the figures, the change, and what it should do: on its own device, or on another."""
    bench(tmp_path, 2)
    code, out, _ = doctor(capsys, "last", "--runs", str(tmp_path))
    _, elsewhere, _ = doctor(capsys, "last", "--runs", str(tmp_path), "--device", "l4/llama-3.1-8b")

    assert code == 1
    assert "simulated:" in elsewhere
    assert elsewhere != out
    assert "first: The number of slots (--max-num-seqs) is reached" in out
    assert "change: --max-num-seqs from 2 to 16" in out
    assert "simulated: output_tokens_per_second" in out


def test_a_healthy_run_is_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said of its folder; in JSON, too."""
    bench(tmp_path, 32)
    [folder] = [one for one in tmp_path.iterdir() if one.is_dir()]
    code, out, _ = doctor(capsys, str(folder))

    assert code == 0
    assert "nothing is wrong" in out
    code, out, _ = doctor(capsys, str(folder), "--json")
    assert code == 0
    assert json.loads(out)["sick"] is False


def test_a_run_of_a_server_is_read_as_far_as_it_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Traces alone."""
    write_run(tmp_path / "run")
    code, out, _ = doctor(capsys, "run", "--runs", str(tmp_path))

    assert code == 0
    assert "run (vllm 1)" in out


def test_what_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No run of that name; nobody at that URL."""
    code, _, err = doctor(capsys, "nothing", "--runs", str(tmp_path))
    assert code == 2
    assert "no one run 'nothing'" in err
    code, _, err = doctor(capsys, "http://127.0.0.1:9", "--window", "1ms")
    assert code == 2
    assert "no server answers" in err
