"""How each framework says each setting: `data/frameworks.toml`, read, checked and kept as plain records."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, Self

from chairlift.advisor.flags.convert import CONVERSIONS, SWITCHES, WORDS
from chairlift.core.errors import ConfigError

FORMAT: Final = 1
"""Raised whenever a key of the file changes its meaning."""
Place = Literal["argument", "yaml", "text"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting as a framework says it."""

    setting: str
    name: str
    reason: str
    source: str
    place: Place = "argument"
    value: str = "same"
    off: str | None = None
    words: Mapping[str, str] = field(default_factory=dict)
    policies: tuple[str, ...] = ()
    omit: tuple[Any, ...] = ()
    none: str | None = None
    since: str | None = None
    until: str | None = None

    def covers(self, version: str) -> bool:
        """Whether that version has it."""
        at = version_key(version)
        return not (
            (self.since is not None and at < version_key(self.since))
            or (self.until is not None and at >= version_key(self.until))
        )


@dataclass(frozen=True, slots=True)
class Lack:
    """One setting that a framework has not."""

    setting: str
    why: str
    source: str
    unless: tuple[Any, ...] = ()
    """Values that it acts by anyway."""
    policies: tuple[str, ...] = ()
    """Under which it has it not; empty: all."""


@dataclass(frozen=True, slots=True)
class Framework:
    """All of one framework."""

    name: str
    title: str
    checked: str
    """Version that all entries were compared with."""
    policies: tuple[str, ...]
    start: str
    policy_source: str
    flags: tuple[Entry, ...]
    lacks: tuple[Lack, ...]
    file: str | None = None
    """What its configuration file is called."""
    file_argument: str | None = None
    wrapped: bool = False
    """Numbers of its text format are messages with a value of their own."""

    @classmethod
    def read(cls, name: str, table: Mapping[str, Any]) -> Self:
        """From the data file.

        Raises:
            ConfigError: a key is unknown or missing, or a conversion is.
        """
        known = {one.name for one in fields(cls)} - {"name", "flags", "lacks"}
        _refuse_unknown(name, table, {*known, "flag", "cannot"})
        plain = {key: _plain(value) for key, value in table.items() if key in known}
        return cls(
            name=name,
            flags=tuple(_entry(name, one) for one in table.get("flag", [])),
            lacks=tuple(_lack(name, one) for one in table.get("cannot", [])),
            **plain,
        )


def version_key(version: str) -> tuple[int, ...]:
    """Numbers of a version, for comparing; b11549 is (11549,), 0.5.23.post1 is (0, 5, 23)."""
    numbers: list[int] = []
    for part in version.lstrip("vb").split("."):
        digits = "".join(character for character in part if character.isdecimal())
        if not digits or not part[0].isdecimal():
            break
        numbers.append(int(digits))
    if not numbers:
        raise ConfigError(f"{version!r} is no version; write one such as 0.32.0.")
    return tuple(numbers)


@cache
def frameworks() -> Mapping[str, Framework]:
    """By name, as the file has them."""
    text = (files("chairlift.advisor.flags") / "data" / "frameworks.toml").read_text("utf-8")
    return parse(text)


def parse(text: str) -> Mapping[str, Framework]:
    """The data file's text.

    Raises:
        ConfigError: another format, or an entry that cannot be.
    """
    table = tomllib.loads(text)
    if (version := table.pop("format", None)) != FORMAT:
        raise ConfigError(f"the table of frameworks has format {version}; this version reads {FORMAT}.")
    return {name: Framework.read(name, one) for name, one in table.items()}


def _entry(framework: str, table: Mapping[str, Any]) -> Entry:
    _refuse_unknown(framework, table, {one.name for one in fields(Entry)})
    entry = Entry(**{key: _plain(value) for key, value in table.items()})
    if entry.value not in (*CONVERSIONS, *SWITCHES, WORDS):
        raise ConfigError(f"{framework}: {entry.setting} is written as {entry.value!r}, which nobody knows.")
    return entry


def _lack(framework: str, table: Mapping[str, Any]) -> Lack:
    _refuse_unknown(framework, table, {one.name for one in fields(Lack)})
    return Lack(**{key: _plain(value) for key, value in table.items()})


def _refuse_unknown(framework: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
    if unknown := table.keys() - set(known):
        raise ConfigError(f"{framework}: the table of frameworks has unknown keys {', '.join(sorted(unknown))}.")


def _plain(value: Any) -> Any:
    """Lists as tuples, so that records are hashable and compare with settings."""
    return tuple(_plain(one) for one in value) if isinstance(value, list) else value
