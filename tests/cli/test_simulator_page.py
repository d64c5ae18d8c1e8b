"""docs/simulator.md shows what its commands print."""

import re
import shlex
from pathlib import Path

import pytest

from chairlift.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "simulator.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[list[str]]:
    """The arguments of every `chairlift simulate` on the page."""
    texts = [body.replace("\\\n", " ") for kind, body in BLOCKS if kind == "sh"]
    lines = [line for text in texts for line in text.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("chairlift simulate")]


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """chat.toml as the page describes it, in the working directory."""
    text = next(
        body
        for body in re.findall(r"```toml\n(.*?)```", (DOCS / "loads.md").read_text("utf-8"), re.DOTALL)
        if body.startswith("# chat.toml")
    )
    text = re.sub(r"rate = \d+", "rate = 8", re.sub(r"count = \d+", "count = 400", text))
    (tmp_path / "chat.toml").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("chat")
@pytest.mark.parametrize("number", [0, 1])
def test_the_page_shows_what_is_printed(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    """To the last digit, on any machine."""
    shown = [body for kind, body in BLOCKS if kind == "text"]
    assert main([*commands()[number], "--jobs", "1"]) == 0

    assert shown[number] in capsys.readouterr().out


def test_the_python_on_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """And everybody is answered."""
    (code,) = (body for kind, body in BLOCKS if kind == "python")
    exec(compile(code, "simulator.md", "exec"), {})

    assert capsys.readouterr().out.startswith("100 ")
