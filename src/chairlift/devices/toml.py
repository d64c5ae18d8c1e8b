"""Reading and writing the small TOML files of this package, with errors that name the file and the key.

Python reads TOML but does not write it; what is written here is plain: sections of strings, whole numbers, numbers, and
lists of those.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from chairlift.core.errors import DeviceModelError

T = TypeVar("T")


def load(path: Path) -> Section:
    """Read a file.

    Raises:
        DeviceModelError: it cannot be read, or is no TOML.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DeviceModelError(f"{path} cannot be read: {error}.") from error
    return parse(text, str(path))


def parse(text: str, source: str) -> Section:
    """Read a text; `source` stands in messages. Raises DeviceModelError when it is no TOML."""
    try:
        return Section(tomllib.loads(text), source)
    except tomllib.TOMLDecodeError as error:
        raise DeviceModelError(f"{source} is no TOML: {error}.") from error


class Section:
    """One table of a file. Every key must be asked for: done() refuses those that were not."""

    def __init__(self, values: Mapping[str, Any], source: str, path: str = "") -> None:
        self._values = values
        self._source = source
        self._path = path
        self._asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def values(self) -> dict[str, Any]:
        """All of it as it stands in the file; counts as asked for."""
        self._asked.update(self._values)
        return dict(self._values)

    def value(self, key: str, kind: type[T], default: T | None = None) -> T:
        """The value, which must be of this kind (a whole number is also a float).

        Raises:
            DeviceModelError: it is missing and has no default, or is of another kind.
        """
        self._asked.add(key)
        if key not in self._values:
            if default is None:
                raise DeviceModelError(f"{self._name(key)} is missing: it must be a {kind.__name__}.")
            return default
        value = self._values[key]
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise DeviceModelError(f"{self._name(key)} is {value!r}; it must be a {kind.__name__}.")
        return value

    def whole(self, key: str, default: int | None = None, *, least: int = 0) -> int:
        """A whole number of at least `least`."""
        value = self.value(key, int, default)
        if value < least:
            raise DeviceModelError(f"{self._name(key)} is {value}; it must be at least {least}.")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings, empty when absent."""
        values: list[Any] = self.value(key, list, [])
        if not all(isinstance(value, str) for value in values):
            raise DeviceModelError(f"{self._name(key)} must be a list of strings.")
        return tuple(values)

    def wholes(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        values: list[Any] = self.value(key, list)
        if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            raise DeviceModelError(f"{self._name(key)} must be a list of whole numbers.")
        return tuple(values)

    def section(self, key: str) -> Section:
        """A table inside this one. Raises DeviceModelError when it is missing or none."""
        self._asked.add(key)
        value = self._values.get(key)
        if not isinstance(value, dict):
            raise DeviceModelError(f"{self._source}: the section [{self._path}{key}] is missing.")
        return Section(value, self._source, f"{self._path}{key}.")

    def done(self) -> None:
        """Raises DeviceModelError when a key was never asked for: a misspelt one would otherwise count for nothing."""
        if left := [key for key in self._values if key not in self._asked]:
            raise DeviceModelError(
                f"{self._name(left[0])} is unknown here; known are {', '.join(sorted(self._asked))}."
            )

    def fail(self, key: str, message: str) -> DeviceModelError:
        """The error for a value that cannot be."""
        return DeviceModelError(f"{self._name(key)}: {message}")

    def _name(self, key: str) -> str:
        return f"{self._source}: {self._path}{key}"


def render(sections: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Sections in order, each (name, values); the first may have an empty name. Values that are None are left out."""
    blocks = []
    for name, values in sections:
        lines = [f"[{name}]"] if name else []
        lines += [f"{_key(key)} = {_literal(value)}" for key, value in values.items() if value is not None]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _text(key)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        items = [_literal(item) for item in value]
        one_line = f"[{', '.join(items)}]"
        return one_line if len(one_line) < 100 else "[\n" + "".join(f"    {item},\n" for item in items) + "]"
    raise TypeError(f"no TOML for {type(value).__name__}")


def _text(value: str) -> str:
    """A JSON string is a TOML basic string, but for the one control character that JSON leaves bare."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
