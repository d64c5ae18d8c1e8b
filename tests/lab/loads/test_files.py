import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.arrivals import Burst, ClosedLoop, Constant, Gamma, OnOff, Poisson, Ramp, TraceReplay
from chairlift.lab.loads.delays import ExponentialDelay, FixedDelay, LogNormalDelay, UniformDelay
from chairlift.lab.loads.files import load_from_pairs, read_load, read_table, write_toml
from chairlift.lab.loads.lengths import (
    BimodalLength,
    CappedExponentialLength,
    FixedLength,
    LogNormalLength,
    UniformLength,
)
from chairlift.lab.loads.load import Load, Prefix, RequestClass, Sessions, TraceLengths

RATE = st.floats(0.001, 10**6)
TIME = st.integers(1, 10**15)
PHASE = st.integers(10**9, 10**15)
TOKENS = st.integers(1, 10**6)
TEXT = st.text(st.characters(codec="utf-8"), max_size=9)
LENGTHS = st.one_of(
    st.builds(FixedLength, TOKENS),
    st.tuples(TOKENS, TOKENS).map(lambda ends: UniformLength(min(ends), max(ends))),
    st.builds(lambda mean, cv: LogNormalLength(mean=mean, cv=cv), RATE, st.floats(0, 9)),
    st.builds(BimodalLength, TOKENS, TOKENS, st.just("3:1"), st.sampled_from(["random", "cycle"])),
    st.builds(CappedExponentialLength, RATE, TOKENS),
)
DELAYS = st.one_of(
    st.builds(FixedDelay, TIME),
    st.tuples(TIME, TIME).map(lambda ends: UniformDelay(min(ends), max(ends))),
    st.builds(ExponentialDelay, TIME),
    st.builds(LogNormalDelay, TIME, st.floats(0, 9)),
)
ARRIVALS = st.one_of(
    st.builds(ClosedLoop, TOKENS, DELAYS, TIME),
    st.builds(Constant, RATE),
    st.builds(Poisson, RATE),
    st.builds(Gamma, RATE, st.floats(0, 100)),
    st.builds(Burst, TOKENS, st.none() | TIME),
    st.builds(Ramp, RATE, RATE, TIME),
    st.builds(OnOff, RATE, PHASE, PHASE, st.just(0.0) | RATE, st.sampled_from(["fixed", "exponential"])),
)
REPLAYS = st.builds(TraceReplay, TEXT, st.sampled_from(["auto", "own"]), TIME, st.booleans(), st.booleans())
PREFIXES = st.builds(Prefix, TOKENS, st.integers(1, 50), st.floats(0.01, 1), st.floats(0, 3))
CLASSES = st.builds(
    RequestClass,
    RATE,
    st.none() | LENGTHS,
    prefix=st.none() | PREFIXES,
    priority=st.none() | st.integers(-5, 5),
    ignore_eos=st.none() | st.booleans(),
)
LOADS = st.builds(
    Load,
    arrivals=ARRIVALS,
    name=TEXT,
    seed=st.integers(-5, 2**64),
    count=TOKENS,
    duration=st.none() | TIME,
    time_scale=st.floats(1e-6, 1e6),
    nonce=st.integers(0, 9),
    prompt=LENGTHS,
    output=LENGTHS,
    prefix=st.none() | PREFIXES,
    sessions=st.none() | st.builds(Sessions, LENGTHS, DELAYS, st.none() | st.integers(2, 10**6)),
    ignore_eos=st.booleans(),
    deadline=st.none() | TIME,
    classes=st.dictionaries(TEXT.filter(bool), CLASSES, max_size=2),
)


def leaves(table: dict[str, Any], path: str = "") -> list[str]:
    """The pairs that say what a table says."""
    pairs = []
    for key, value in table.items():
        where = f"{path}.{key}" if path else key
        pairs += leaves(value, where) if isinstance(value, dict) else [f"{where}={value}"]
    return pairs


@given(LOADS)
def test_a_load_written_as_a_file_is_read_back_equal(load: Load) -> None:
    """Through TOML and through its table, with every kind of arrivals, lengths, thinking, classes and odd names."""
    assert read_table(tomllib.loads(write_toml(load))) == load
    assert read_table(load.to_table()) == load


@given(LOADS.map(lambda load: dataclasses.replace(load, classes={}, name="")))
def test_pairs_say_the_same_as_a_file(load: Load) -> None:
    """The same keys with dots, all values as text, give the same load."""
    assert load_from_pairs(leaves(load.to_table())) == load


@given(REPLAYS)
def test_a_trace_replay_is_read_back_equal(arrivals: TraceReplay) -> None:
    """It needs neither an end nor lengths."""
    load = Load(arrivals=arrivals)

    assert read_table(tomllib.loads(write_toml(load))) == load


def test_a_file_is_read_with_changes(tmp_path: Path) -> None:
    """Pairs replace single keys; another kind replaces its whole table; relative paths start at the file's folder."""
    path = tmp_path / "a.toml"
    path.write_text('count = 5\nprompt = 1\noutput = 2\narrivals = { kind = "gamma", rate = 1, cv = 2 }\n')

    plain = read_load(path)

    assert plain.arrivals == Gamma(1, 2)
    assert plain.folder == tmp_path
    assert read_load(path, ["arrivals.rate=8", "output=3"]) == dataclasses.replace(
        plain, arrivals=Gamma(8, 2), output=FixedLength(3)
    )
    assert read_load(path, ["arrivals=poisson", "arrivals.rate=8"]).arrivals == Poisson(8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("count = ", "is no TOML"),
        ("count = 5\nprompt = 1\noutput = 1\narrivals = 5", "a.toml: arrivals is 5; it is a table with kind = closed,"),
        ("count = 5\narivals = 5", r"a.toml: arivals is unknown; did you mean arrivals\?"),
        ("count = 5", "a.toml: arrivals is missing; a load needs it."),
        ('arrivals = { kind = "poisson", rate = "4" }', "a.toml: arrivals.rate is '4'; it is a number."),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, content: str, message: str) -> None:
    """No TOML, or an unknown, missing or wrong key."""
    path = tmp_path / "a.toml"
    path.write_text(content)

    with pytest.raises(ConfigError, match=message):
        read_load(path)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    """With its path and the system's reason."""
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read: No such file"):
        read_load(tmp_path / "none.toml")


def test_lengths_of_a_trace_are_a_load_of_their_own() -> None:
    """A joint source stands in place of prompt and output."""
    load = load_from_pairs(["arrivals=poisson", "arrivals.rate=1", "count=1", "lengths=trace", "lengths.file=x"])

    assert load.lengths == TraceLengths("x")
