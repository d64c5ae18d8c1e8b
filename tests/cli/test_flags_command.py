import json

import pytest

from chairlift.cli.main import main


def flags(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    code = main(["flags", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_command_to_paste_with_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    """And where it is written, if that is asked for."""
    code, out, _ = flags(capsys, "--for", "vllm", "--max-num-seqs", "64", "--sources")

    assert code == 0
    assert "vllm serve MODEL" in out
    assert "--max-num-seqs 64" in out
    assert "https://docs.vllm.ai" in out


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments as a vector, the file as text; the device converts a share."""
    argv = ["--for", "tensorrt-llm", "--json", "--gpu-memory-utilization", "0.9", "--device", "h100-sxm"]
    code, out, _ = flags(capsys, *argv, "--model", "llama-3.1-8b")
    told = json.loads(out)

    assert code == 0
    assert told["arguments"][:2] == ["--max_seq_len", "2048"]
    assert "MAX_UTILIZATION" in told["file"]
    assert 0.8 < float(told["arguments"][told["arguments"].index("--free_gpu_memory_fraction") + 1]) < 0.9


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "--for is missing"),
        (["--for", "vlm"], "did you mean vllm"),
        (["--for", "vllm", "--device", "h100"], "--device and --model go together"),
        (["--for", "vllm", "--framework-version", "new"], "is no version"),
    ],
)
def test_what_cannot_be_said_is_an_error(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and the way out."""
    code, _, err = flags(capsys, *argv)

    assert code == 2
    assert message in err
