from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from chairlift.cli.flags import add_flags, build, field_docs
from chairlift.cli.parser import Parser
from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ConfigError
from chairlift.core.request import Nanoseconds


@dataclass(frozen=True)
class Example:
    """Settings of every kind."""

    size: int | None = None
    """Bytes of it. At 100% all."""
    wait: Nanoseconds = 50_000_000
    """How long."""
    mode: Literal["slow", "fast"] = "slow"
    """Static: which."""
    cache_dir: Path | None = None
    """Where."""
    sizes: tuple[int, ...] = ()
    """Which ones."""
    enable_thing: bool = True
    """Whether."""
    share: float = 0.9
    """How much."""


@dataclass(frozen=True)
class Odd:
    """Settings that no command line can say."""

    thing: dict[str, int] | None = None
    """A table."""


def parser(config: type = Example) -> Parser:
    """A parser with the flags of one dataclass."""
    made = Parser("chairlift test", "a test")
    add_flags(made, config, "settings")
    return made


def read(*argv: str) -> Example:
    """What a command line makes of Example."""
    return build(Example, parser().read(argv))


def test_every_field_is_a_flag_of_its_kind() -> None:
    """Durations and sizes take a unit, tuples commas, bools --x and --no-x; the dataclass gets plain values."""
    made = read(
        "--size=2GiB", "--wait", "1.5s", "--mode", "fast", "--cache-dir", "/c", "--sizes", "4,8", "--no-enable-thing"
    )

    assert made == Example(2 << 30, 1_500_000_000, "fast", Path("/c"), (4, 8), enable_thing=False)


def test_absent_flags_leave_the_defaults_to_the_dataclass() -> None:
    """No flag, no field set."""
    assert read() == Example()
    assert vars(parser().read([])) == {}


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--wait", "50"], ["--wait is '50'", "with a unit", "50ms"]),
        (["--wait=fast"], ["--wait is 'fast'"]),
        (["--mode", "fats"], ["--mode is 'fats'", "one of slow, fast", "did you mean fast?"]),
        (["--sizs", "4"], ["no flag --sizs", "did you mean --sizes"]),
        (["--cache_dir", "/c"], ["no flag --cache_dir", "--cache-dir"]),
        (["--enable-thin"], ["no flag --enable-thin", "--enable-thing"]),
        (["--unheard-of"], ["no flag --unheard-of"]),
        (["-x"], ["no flag -x"]),
        (["--wait"], ["--wait", "expected one argument"]),
        (["stray"], ["'stray' is one argument too many"]),
        (["--no-enable-thing=1"], ["--no-enable-thing"]),
    ],
)
def test_a_wrong_argument_is_answered_with_the_flag_the_value_and_what_would_do(
    argv: list[str], parts: list[str]
) -> None:
    """Close matches for a flag, an example or the choices for a value, and where to read on."""
    with pytest.raises(ConfigError) as caught:
        parser().read(argv)

    for part in [*parts, "See chairlift test --help."]:
        assert part in str(caught.value)


def test_help_is_the_docstring_with_the_default() -> None:
    """The docstring under a field is its help, percent signs included; policies have groups of their own."""
    text = " ".join(parser().format_help().split())

    assert "--size SIZE Bytes of it. At 100% all." in text
    assert "--wait DURATION How long. (default: 50ms)" in text
    assert "static batching (--policy static): --mode {slow,fast} Which. (default: slow)" in text
    assert "--enable-thing, --no-enable-thing Whether. (default: on)" in text


def test_every_scheduler_setting_is_a_flag_with_help() -> None:
    """No setting of the scheduler is out of reach of the command line, and none lacks an explanation."""
    made = parser(SchedulerConfig)
    text = made.format_help()

    for name in SchedulerConfig.__dataclass_fields__:
        assert f"--{name.replace('_', '-')}" in text
        assert len(field_docs(SchedulerConfig)[name]) > 20


def test_max_seq_len_is_another_name_for_max_model_len() -> None:
    """Both names set the same field."""
    assert build(SchedulerConfig, parser(SchedulerConfig).read(["--max-seq-len", "4096"])).max_model_len == 4096


def test_settings_that_do_not_go_together_are_refused_with_their_flags() -> None:
    """The dataclass's own validation speaks to the command line."""
    arguments = parser(SchedulerConfig).read(["--max-num-batched-tokens", "64", "--max-num-seqs", "128"])

    with pytest.raises(ConfigError, match=r"--max-num-batched-tokens is 64, but --max-num-seqs"):
        build(SchedulerConfig, arguments)


def test_a_field_of_an_unknown_kind_is_a_bug_that_shows_at_once() -> None:
    """A dataclass field that cannot be a flag raises TypeError when the parser is built."""
    with pytest.raises(TypeError, match="the field thing is a"):
        parser(Odd)
