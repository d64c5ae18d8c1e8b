"""Flags from configuration dataclasses: the field gives name, kind and default, the docstring under it the help.

A field named max_num_seqs becomes --max-num-seqs. A bool becomes --x and --no-x. What the annotation calls Nanoseconds
is written with a unit (50ms), and so is an int whose docstring begins with "Bytes" (2GiB). A docstring that begins with
"Static:" and the like puts the flag into that policy's group. Only flags that were given reach the dataclass, so its
defaults stay in one place.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import itertools
import sys
import types
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar, cast, get_args, get_origin, get_type_hints

from chairlift.cli.parser import Parser, ReadValue
from chairlift.cli.units import DURATION, NUMBER, PATH, SIZE, TEXT, TEXT_LIST, WHOLE, WHOLE_LIST, Kind, choice
from chairlift.core.config import flag

ALIASES: Final[Mapping[str, str]] = {"max_model_len": "--max-seq-len"}
"""Second names of flags, as other servers have them."""

_NANOSECONDS: Final = "Nanoseconds"
"""The name in an annotation of what is a plain int to Python."""

_KINDS: Final[Mapping[Any, Kind]] = {
    int: WHOLE,
    float: NUMBER,
    str: TEXT,
    Path: PATH,
    tuple[int, ...]: WHOLE_LIST,
    tuple[str, ...]: TEXT_LIST,
}
_GROUPS: Final = {
    "Static:": "static batching (--policy static)",
    "Dynamic:": "dynamic batching (--policy dynamic)",
    "Continuous:": "continuous batching (--policy continuous)",
}


C = TypeVar("C")


class Holder(Protocol):
    """A parser or one of its groups."""

    def add_argument(self, *names: str, **options: Any) -> argparse.Action: ...


def add_flags(parser: Parser, config: type, title: str, *, without: Collection[str] = ()) -> None:
    """One flag for each field of a configuration dataclass, but for those in `without`."""
    docs = field_docs(config)
    kinds = field_kinds(config, without)
    groups: dict[str, Holder] = {}
    for field in dataclasses.fields(config):
        if field.name in without:
            continue
        doc = docs[field.name]
        heading = _GROUPS.get(doc.split(maxsplit=1)[0], title)
        if heading not in groups:
            groups[heading] = parser.add_argument_group(heading)
        if heading != title:
            doc = doc.split(maxsplit=1)[1]
            doc = doc[0].upper() + doc[1:]
        add_flag(groups[heading], field.name, kinds[field.name], doc, _default(field))


def add_flag(holder: Holder, name: str, kind: Kind | None, doc: str, default: object = None) -> None:
    """One flag. Absent, it leaves no trace in the namespace.

    Args:
        holder: the parser or a group of it.
        name: the field's name.
        kind: None for a switch.
        doc: what the help says.
        default: shown in the help; None is not.
    """
    names = [flag(name), *([ALIASES[name]] if name in ALIASES else [])]
    text = doc if default is None else f"{doc.rstrip()} (default: {_shown(kind, default)})"
    text = text.replace("%", "%%")
    if kind is None:
        holder.add_argument(
            *names, dest=name, help=text, default=argparse.SUPPRESS, action=argparse.BooleanOptionalAction
        )
    else:
        holder.add_argument(*names, dest=name, help=text, default=argparse.SUPPRESS, action=ReadValue, kind=kind)


def build(config: type[C], arguments: argparse.Namespace, **fixed: Any) -> C:
    """The dataclass from the flags that were given; `fixed` come from elsewhere.

    Raises:
        ConfigError: the settings do not go together.
    """
    names = {field.name for field in dataclasses.fields(cast("Any", config))}
    given = {name: value for name, value in vars(arguments).items() if name in names}
    return config(**(given | fixed))


def field_docs(config: type) -> dict[str, str]:
    """The docstring under each field, as one paragraph, those of parent classes included."""
    return {name: source.doc for name, source in _sources(config).items()}


def field_kinds(config: type, without: Collection[str] = ()) -> dict[str, Kind | None]:
    """How each field is read, but for those in `without`; None for a bool."""
    hints = get_type_hints(config)
    units = {name: source.unit for name, source in _sources(config).items()}
    return {
        field.name: units.get(field.name) or _kind(field.name, hints[field.name])
        for field in dataclasses.fields(config)
        if field.name not in without
    }


def _kind(name: str, hint: Any) -> Kind | None:
    if get_origin(hint) is types.UnionType or type(None) in get_args(hint):
        options = [option for option in get_args(hint) if option is not type(None)]
        if len(options) == 1:
            return _kind(name, options[0])
    if hint is bool:
        return None
    if get_origin(hint) is Literal:
        return choice(get_args(hint))
    if hint not in _KINDS:
        raise TypeError(f"the field {name} is a {hint}; no flag can be made of that")
    return _KINDS[hint]


@dataclasses.dataclass(frozen=True, slots=True)
class _Source:
    """What only the source text of a field has."""

    doc: str
    unit: Kind | None


def _sources(config: type) -> dict[str, _Source]:
    found: dict[str, _Source] = {}
    for cls in reversed(config.__mro__):
        if dataclasses.is_dataclass(cls):
            found |= _sources_of(cls)
    return found


def _sources_of(cls: type) -> dict[str, _Source]:
    tree = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    body = next((node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__), [])
    found = {}
    for node, below in itertools.pairwise([*body, ast.Pass()]):
        match node, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                names = {part.id for part in ast.walk(node.annotation) if isinstance(part, ast.Name)}
                doc = " ".join(text.split())
                unit = DURATION if _NANOSECONDS in names else SIZE if doc.startswith("Bytes ") else None
                found[name] = _Source(doc, unit)
    return found


def _default(field: dataclasses.Field[Any]) -> object:
    return None if field.default is dataclasses.MISSING else field.default


def _shown(kind: Kind | None, value: object) -> str:
    if kind is None:
        return "on" if value else "off"
    return kind.write(value)
