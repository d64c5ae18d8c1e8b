"""Tables (of a TOML file, or of key=value pairs) to frozen dataclasses and back, with errors that name the key.

A dataclass that is one of several kinds carries `KIND`, the word that the key `kind` chooses it by; one that may be
written as a bare value carries `BARE`, the field that the value fills (`prompt = 128`). A field annotated Nanoseconds
is written with a unit (`"2s"`).
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NewType, Union, get_args, get_origin, get_type_hints

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.units import read_duration, write_duration

_Duration = NewType("_Duration", int)
_WORDS: Final = {"true": True, "false": False}


@dataclasses.dataclass(frozen=True, slots=True)
class Reader:
    """Reads values by their annotation."""

    source: str = ""
    """Stands before every message: the file's name."""
    text: bool = False
    """Whether numbers may be written as text, as on a command line."""

    def table(self, cls: type, table: Mapping[str, Any], where: str = "") -> Any:
        """An instance of a dataclass.

        Raises:
            ConfigError: an unknown key (with the one that was meant), a missing one, or a wrong value.
        """
        fields = {field.name: field for field in dataclasses.fields(cls) if field.init and field.compare}
        for key in table:
            if key not in fields:
                raise self.error(f"{_join(where, key)} is unknown; {_meant(key, where, fields)}")
        hints = get_type_hints(cls, localns={"Nanoseconds": _Duration})
        values = {key: self.value(hints[key], value, _join(where, key)) for key, value in table.items()}
        for field in fields.values():
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            if required and field.name not in values:
                needs = f"the {cls.KIND!r} of {where}" if hasattr(cls, "KIND") else where or "a load"
                raise self.error(f"{_join(where, field.name)} is missing; {needs} needs it.")
        try:
            return cls(**values)
        except ConfigError as error:
            raise self.error(f"{_join(where, str(error))}") from None

    def value(self, hint: Any, value: Any, where: str) -> Any:
        """A value of the kind that an annotation asks for.

        Raises:
            ConfigError: it is something else.
        """
        options = _options(hint)
        if len(options) > 1:
            return self._one_of(options, value, where)
        (hint,) = options
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            return self._one_of(options, value, where)
        if get_origin(hint) is Literal:
            return self._choice(get_args(hint), value, where)
        if get_origin(hint) is Mapping:
            if not isinstance(value, Mapping):
                raise self.error(f"{where} is {value!r}; it is a table of named tables.")
            return {key: self.value(get_args(hint)[1], item, _join(where, key)) for key, item in value.items()}
        return self._scalar(hint, value, where)

    def error(self, message: str) -> ConfigError:
        return ConfigError(f"{self.source}: {message}" if self.source else message)

    def _one_of(self, options: tuple[type, ...], value: Any, where: str) -> Any:
        """One of several dataclasses, chosen by `kind`; or the one that a bare value stands for."""
        kinds = {option.KIND: option for option in options if hasattr(option, "KIND")}
        if not isinstance(value, Mapping):
            bare = next((option for option in options if hasattr(option, "BARE")), None)
            if isinstance(value, str) and value in kinds:
                value = {"kind": value}
            elif bare is not None:
                return self.table(bare, {bare.BARE: value}, where)
            else:
                known = f"a table with kind = {_listed(kinds)}" if kinds else "a table"
                raise self.error(f"{where} is {value!r}; it is {known}.")
        if not kinds:
            return self.table(options[0], value, where)
        rest = {key: item for key, item in value.items() if key != "kind"}
        if "kind" not in value:
            raise self.error(f"{where}.kind is missing; it is one of {_listed(kinds)}.")
        kind = self._choice(tuple(kinds), value["kind"], f"{where}.kind")
        return self.table(kinds[kind], rest, where)

    def _choice(self, options: tuple[Any, ...], value: Any, where: str) -> Any:
        if value in options:
            return value
        near = difflib.get_close_matches(str(value), map(str, options), n=1, cutoff=0.5)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise self.error(f"{where} is {value!r}; it is one of {_listed(options)}{meant}.")

    def _scalar(self, hint: Any, value: Any, where: str) -> Any:
        if hint is _Duration:
            return self._duration(value, where)
        if self.text and isinstance(value, str) and hint is not str:
            value = _from_text(hint, value)
        if hint is float and type(value) is int:
            value = float(value)
        if type(value) is not hint or (hint is float and not math.isfinite(value)):
            expected = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[hint]
            raise self.error(f"{where} is {value!r}; it is {expected}.")
        return value

    def _duration(self, value: Any, where: str) -> int:
        if value == 0 and type(value) is int:
            return 0
        try:
            return read_duration(value if isinstance(value, str) else "")
        except ValueError as error:
            raise self.error(f"{where} is {value!r}; it is {error}.") from None


def write_table(instance: Any) -> dict[str, Any]:
    """The table that `Reader.table` reads back to an equal instance. What equals its default is left out."""
    hints = get_type_hints(type(instance), localns={"Nanoseconds": _Duration})
    table: dict[str, Any] = {"kind": instance.KIND} if hasattr(instance, "KIND") else {}
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        if field.compare and value != default:
            table[field.name] = _written(hints[field.name], value)
    return table


def nested(pairs: Iterable[str]) -> dict[str, Any]:
    """Tables from `key.key=value` texts. A key given bare and dotted names its kind: `prompt=uniform prompt.min=1`.

    Raises:
        ConfigError: a pair without `=`, or a key given twice.
    """
    tables: dict[str, Any] = {}
    bare: dict[str, str] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{pair!r} is no key=value, such as arrivals.rate=4.")
        if key in bare:
            raise ConfigError(f"{key} is given twice: {bare[key]!r} and {text!r}.")
        bare[key] = text
    for key, text in bare.items():
        *path, last = key.split(".")
        if any(other.startswith(f"{key}.") for other in bare):
            path, last = key.split("."), "kind"
        table = tables
        for name in path:
            table = table.setdefault(name, {})
        table[last] = text
    return tables


def _options(hint: Any) -> tuple[Any, ...]:
    """What a union allows besides None."""
    if get_origin(hint) in {types.UnionType, Union}:
        return tuple(option for option in get_args(hint) if option is not type(None))
    return (hint,)


def _from_text(hint: Any, text: str) -> Any:
    if hint is bool:
        return _WORDS.get(text.lower(), text)
    try:
        return hint(text)
    except ValueError:
        return text


def _written(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return write_table(value)
    if isinstance(value, Mapping):
        return {key: write_table(item) for key, item in value.items()}
    return write_duration(value) if _Duration in _options(hint) else value


def _meant(key: str, where: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    return f"did you mean {_join(where, near[0])}?" if near else f"there are {', '.join(known)}."


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names))
