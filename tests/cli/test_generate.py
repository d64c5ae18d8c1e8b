from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import chairlift.engine.loader
from chairlift.cli.generate import Display
from chairlift.cli.main import main
from chairlift.engine.config import EngineConfig
from chairlift.engine.loader import LoadedModel
from chairlift.engine.offline import Progress
from chairlift.engine.sampling import BatchSampler
from chairlift.runners.fake import FakeRunner
from tests.engine.tiny import byte_tokenizer


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> FakeRunner:
    """The device behind every model that is loaded."""
    fake = FakeRunner(vocabulary=128)

    def load(config: EngineConfig) -> LoadedModel:
        return LoadedModel(
            "fake", Path(config.model), fake, BatchSampler(), byte_tokenizer(), None, config.scheduler, "memory: enough"
        )

    monkeypatch.setattr(chairlift.engine.loader, "load_model", load)
    return fake


def write(path: Path, *bodies: dict[str, Any]) -> Path:
    """A batch file of completions."""
    rows = [
        {"custom_id": f"r{number}", "method": "POST", "url": "/v1/completions", "body": body}
        for number, body in enumerate(bodies)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def answers(path: Path) -> dict[str, Any]:
    """custom_id -> response."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["custom_id"]: row["response"] for row in rows}


def test_every_line_is_answered(runner: FakeRunner, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, one answer for each line, the sum of it on standard error, nothing on standard output."""
    source, target = write(tmp_path / "in", {"prompt": "abc"}, {"prompt": "de", "max_tokens": 4}), tmp_path / "out"

    assert main(["generate", "m.gguf", str(source), str(target), "--policy", "static", "--batch-size", "2"]) == 0

    told = capsys.readouterr()
    assert answers(target).keys() == {"r0", "r1"}
    assert answers(target)["r1"]["body"]["usage"]["completion_tokens"] == 4
    assert "2 of 2 answered (0 by an earlier run, 0 failed); 5 prompt and 20 output tokens" in told.err
    assert "memory: enough" in told.err
    assert told.out == ""
    assert runner.closed


def test_a_second_run_answers_only_what_is_missing(
    runner: FakeRunner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same command again goes on where the first ended."""
    source, target = write(tmp_path / "in", {"prompt": "abc"}, {"prompt": "de"}), tmp_path / "out"
    main(["generate", "m", str(source), str(target)])
    lines = target.read_text(encoding="utf-8").splitlines(keepends=True)
    target.write_text(lines[0] + lines[1][:20], encoding="utf-8")
    capsys.readouterr()

    assert main(["generate", "m", str(source), str(target)]) == 0

    assert answers(target).keys() == {"r0", "r1"}
    assert "(1 by an earlier run, 0 failed)" in capsys.readouterr().err


def test_lines_that_fail_make_the_exit_code_1(runner: FakeRunner, tmp_path: Path) -> None:
    """Their reason is in OUT; the other lines are answered."""
    source, target = write(tmp_path / "in", {"prompt": "abc"}, {"prompt": "a", "echo": True}), tmp_path / "out"

    assert main(["generate", "m", str(source), str(target)]) == 1

    assert answers(target)["r0"]["status_code"] == 200
    assert answers(target)["r1"]["body"]["error"]["param"] == "echo"


def test_a_model_may_have_other_names(runner: FakeRunner, tmp_path: Path) -> None:
    """--served-model-name lets a file that was written for another service run as it is."""
    source, target = write(tmp_path / "in", {"prompt": "abc", "model": "gpt-x"}), tmp_path / "out"

    assert main(["generate", "m", str(source), str(target), "--served-model-name", "gpt-x"]) == 0
    assert answers(target)["r0"]["body"]["model"] == "gpt-x"


@pytest.mark.parametrize(
    ("content", "said"), [(None, "cannot be read"), ("{", "line 1 of"), ('{"custom_id": 5}', "custom_id 5")]
)
def test_a_bad_input_ends_with_2_before_a_model_is_loaded(
    tmp_path: Path, content: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing or malformed file is told at once, with the line's number."""
    source = tmp_path / "in"
    if content is not None:
        source.write_text(content, encoding="utf-8")

    assert main(["generate", str(tmp_path / "no-model"), str(source), str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err


def test_an_interrupted_run_says_how_to_go_on(
    runner: FakeRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C: exit code 130, the device is freed, and a hint."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "execute", interrupt)
    source = write(tmp_path / "in", {"prompt": "abc"})

    assert main(["generate", "m", str(source), str(tmp_path / "out")]) == 130
    assert "the same command again goes on" in capsys.readouterr().err
    assert runner.closed


def test_progress_is_redrawn_on_a_terminal_and_sparse_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A terminal's line is redrawn at most five times a second; a file gets a line every ten seconds."""
    clock = [0.0]
    monkeypatch.setattr("chairlift.cli.generate.time.monotonic", lambda: clock[0])
    written = {}
    for terminal in (True, False):
        clock[0] = 0.0
        monkeypatch.setattr("sys.stderr.isatty", lambda terminal=terminal: terminal)
        show = Display()
        for _ in range(160):
            clock[0] += 0.125
            show(Progress(total=9, skipped=0))
        show.end()
        written[terminal] = capsys.readouterr().err

    assert written[True].count("\r") == 80
    assert written[True].endswith("\n")
    assert written[False].count("\n") == 2
