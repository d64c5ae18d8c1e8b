"""A load from a TOML file or from key=value pairs, and back into a file."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.tables import Reader, nested

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def read_load(path: Path, changes: Iterable[str] = ()) -> Load:
    """The load of a TOML file.

    Args:
        path: the file; relative paths in it start at its folder.
        changes: key=value pairs that replace what the file says, such as `arrivals.rate=8`.

    Raises:
        ConfigError: the file cannot be read, or a key is unknown, missing or wrong.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the load {path} cannot be read: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the load {path} is no TOML: {error}.") from error
    changed = nested(changes)
    return _build(_merged(table, changed), Reader(path.name, text=bool(changed)), path.parent)


def load_from_pairs(pairs: Iterable[str], folder: Path = Path()) -> Load:
    """The load of key=value pairs, such as `arrivals=poisson arrivals.rate=4 prompt=128 output=64 count=100`.

    Args:
        pairs: keys as in the file, with dots; `prompt=uniform` is short for `prompt.kind=uniform`.
        folder: where relative paths start.

    Raises:
        ConfigError: as `read_load`.
    """
    return _build(nested(pairs), Reader(text=True), folder)


def read_table(table: Mapping[str, Any], folder: Path = Path()) -> Load:
    """The load of a table, as `Load.to_table` makes it.

    Raises:
        ConfigError: as `read_load`.
    """
    return _build(table, Reader(), folder)


def write_toml(load: Load) -> str:
    """The load as a file that `read_load` reads back to an equal one."""
    return "\n".join(_toml(load.to_table(), ())) + "\n"


def _build(table: Mapping[str, Any], reader: Reader, folder: Path) -> Load:
    load: Load = reader.table(Load, table)
    object.__setattr__(load, "folder", folder)  # not a key of the file, so not the reader's to set
    return load


def _merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The table with the changes in place; another kind replaces its table as a whole."""
    merged = dict(table)
    for key, change in changes.items():
        old = table.get(key)
        merged[key] = change
        if isinstance(old, Mapping) and isinstance(change, Mapping) and change.get("kind") in {None, old.get("kind")}:
            merged[key] = _merged(old, change)
    return merged


def _toml(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    values = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in values.items()]
    if path and (lines or not table):
        lines = ["", f"[{'.'.join(map(_key, path))}]", *lines]
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _toml(value, (*path, key))
    return lines


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, str):  # JSON's escapes are TOML's, but for one character that JSON leaves as it is
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)
