import subprocess
import sys
from pathlib import Path

import pytest

from chairlift import __version__
from chairlift.cli import main as module
from chairlift.cli.main import COMMANDS, main
from chairlift.core.errors import UnsupportedModel

HEAVY = {"asyncio", "fastapi", "numpy", "openvino", "prometheus_client", "pydantic", "rich", "tokenizers", "uvicorn"}


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The overview names each command with what it does, and the exit codes."""
    assert main(["--help"]) == 0

    out = capsys.readouterr().out
    for name, summary in COMMANDS.items():
        assert f"{name} " in out
        assert summary in out
    assert "Exit codes" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`chairlift NAME --help` works for each command in the list, without running it."""
    assert main([name, "--help"]) == 0
    assert f"usage: chairlift {name}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version says which version this is."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"chairlift {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "usage: chairlift COMMAND"),
        (["serv"], "no command 'serv'; did you mean serve?"),
        (["xyzzy"], "there are demo, serve, generate"),
        (["serve"], "MODEL"),
        (["serve", "m", "--max-num-sqs", "4"], "did you mean --max-num-seqs"),
        (["serve", "m", "--port", "many"], "--port is 'many'"),
        (["serve", "m", "--max-queue-delay", "50"], "--max-queue-delay is '50'"),
    ],
)
def test_what_cannot_run_ends_with_2_and_the_reason_on_stderr(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, one message on standard error, nothing on standard output, no traceback."""
    assert main(argv) == 2

    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (UnsupportedModel("no such architecture: mamba"), 2, "chairlift: no such architecture: mamba\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_how_a_command_ended_is_the_exit_code(
    raised: BaseException,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error raised on purpose is its message and 2; Ctrl-C is 130 and silence."""

    def run(*_: object) -> int:
        raise raised

    monkeypatch.setattr(module, "_run", run)

    assert main(["serve", "m"]) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("argv", [["--help"], ["serve", "--help"], ["generate", "--help"]])
def test_help_imports_nothing_heavy(argv: list[str]) -> None:
    """Help answers at once because nothing slow is imported for it."""
    program = f"import sys; from chairlift.cli.main import main; main({argv!r}); print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert not loaded & HEAVY


def test_a_reader_that_leaves_is_no_error() -> None:
    """`chairlift --help | head -1` ends quietly."""
    program = "from chairlift.cli.main import main; import sys; sys.exit(main(['--help']))"

    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()

    assert process.returncode == 0
    assert said == ""


@pytest.mark.parametrize(("closing", "code", "said"), [(">&-", 0, ""), ("> /dev/full", 2, "No space left on device")])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_output_that_takes_nothing_ends_without_a_traceback(closing: str, code: int, said: str) -> None:
    """Closed: whoever started it wants none. Full: it could not be written, and that is said."""
    program = f'"{sys.executable}" -c "from chairlift.cli.main import main; import sys; sys.exit(main([\'--help\']))"'

    done = subprocess.run(["/bin/sh", "-c", f"{program} {closing}"], stderr=subprocess.PIPE, text=True, check=False)

    assert (done.returncode, said in done.stderr) == (code, True)
    assert "Traceback" not in done.stderr
    assert said or not done.stderr
