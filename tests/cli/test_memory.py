import json
from pathlib import Path

import pytest

from chairlift.cli.main import main


def memory(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    code = main(["memory", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_model_and_a_device_are_enough(capsys: pytest.CaptureFixture[str]) -> None:
    """Everything else has a default that is shown."""
    code, out, _ = memory(capsys, "llama-3.1-8b", "--device", "h100-sxm", "--alternatives")

    assert code == 0
    assert "KV cache" in out
    assert "useful" in out
    assert "int4" in out


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes, blocks and sequences as numbers."""
    argv = ["llama-3.1-8b", "--device", "l4", "--json", "--prompt", "500", "--output", "100", "--weights", "int4"]
    code, out, _ = memory(capsys, *argv)
    told = json.loads(out)

    assert code == 0
    assert told["tokens"] == told["blocks"] * told["block_size"]
    assert told["lengths"]["prompt"] == 500
    assert told["useful"]["useful"] <= told["fits"]["nearly_always"]
    assert len(told["alternatives"]) > 4


def test_a_model_that_does_not_fit_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, what lacks, and which precision or number of devices would do."""
    code, out, _ = memory(capsys, "llama-3.1-70b", "--device", "h100-sxm")

    assert code == 1
    assert "does not fit" in out
    assert "--tensor-parallel-size" in out
    code, out, _ = memory(capsys, "llama-3.1-70b", "--device", "h100-sxm", "--json")
    assert code == 1
    assert "131.4 GiB" in json.loads(out)["does_not_fit"]


def test_a_loads_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From its file, instead of --prompt and --output."""
    load = tmp_path / "chat.toml"
    load.write_text('count = 50\nprompt = 300\noutput = 60\n[arrivals]\nkind = "poisson"\nrate = 4\n')
    argv = ["smollm2-135m", "--device", "l4", "--load", str(load)]
    code, out, _ = memory(capsys, *argv)

    assert code == 0
    assert "prompt 300, output 60 tokens on average" in out
    code, _, err = memory(capsys, *argv, "--prompt", "5")
    assert code == 2
    assert "leave --prompt and --output out" in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["llama-3.1-8b", "--device", "h200", "--measure"], "leave --device h200 out"),
        (["llama-3.1-8b", "--tensor-parallel-size", "2"], "needs a device: add --device"),
        (["llama-3.1-8b", "--device", "l4", "--prompt", "0"], "--prompt 0 and --output 512 must both be at least 1"),
        (["llama-3.1-8b", "--device", "l4", "--output", "0"], "and --output 0 must both be at least 1"),
        (["llama-3.1-8b", "--device", "l4", "--prompt", "4000"], "--max-model-len is 2,048: raise it to 4,001"),
        (["llama-3.1-8b", "--device", "l4", "--prompt", "200000"], "the model was made for 131,072"),
        (["smollm2-135m", "--kv", "f8"], "--kv is f8; this machine keeps keys and values as bf16, f16, f32"),
        (["llama-3.1-8b", "--measure"], "there is no file or directory llama-3.1-8b"),
        (["llama-3.1-8b", "--device", "l4", "--block-size", "0"], "--block-size is 0"),
        (["llama-3.1-8b", "--device", "h1000"], "the device 'h1000' is unknown"),
        (["smollm2-135m", "--max-model-len", "9000"], "the model was made for 8,192"),
    ],
)
def test_what_does_not_go_together_is_said(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the flag and the way out."""
    code, _, err = memory(capsys, *argv)

    assert code == 2
    assert message in err


def test_this_machine_needs_no_device(capsys: pytest.CaptureFixture[str]) -> None:
    """Its memory is known, its speed is not."""
    code, out, _ = memory(capsys, "smollm2-135m", "--kv", "f32")

    assert code == 0
    assert "this machine/smollm2-135m" in out
    assert "45.0 KiB" in out
    assert "tokens/s" not in out


def test_a_pool_that_is_given_is_told_to_decide(capsys: pytest.CaptureFixture[str]) -> None:
    """The curve over the share is then about what would be without it."""
    _, out, _ = memory(capsys, "llama-3.1-8b", "--device", "h100-sxm", "--kv-cache-memory", "10GiB")

    assert "--kv-cache-memory decides, and the share nothing; without --kv-cache-memory:" in out
