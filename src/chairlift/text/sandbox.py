"""A Jinja environment for chat templates that come with a model: no way out, and no way to run for ever.

The dialect is the one `transformers` defines for chat templates: blocks trimmed, `break` and `continue`,
`raise_exception`, `strftime_now`, `tojson` that escapes nothing, and `{% generation %}` marks, which mean nothing
when a prompt is rendered.

Jinja's own sandbox keeps templates from Python's internals and from changing what they are given. What it leaves
open is time and memory, so each rendering also has a budget: turns of loops and calls of macros, characters written,
and the size of what one operator, filter or method builds. Going over it is an error, at the same place every time.
The budget is for mistakes and pranks; who chooses the model file chooses its template.
"""

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_TURNS: Final = 100_000
"""Turns of loops and calls of macros in one rendering, all together."""
MAX_CHARACTERS: Final = 8 << 20
"""Characters of a prompt, and of any one string, or items of any one list, on the way to it."""

_MAX_INTEGER_BITS: Final = 1 << 16
_WIDE_FORMAT: Final = re.compile(r"\d{6}|%[^%]*\*")


class BudgetError(TemplateError):
    """A template asked for more turns or more characters than one rendering may use."""


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """The environment in which one chat template is compiled and rendered; one rendering at a time.

    Args:
        now: the local time, for templates that write the date.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], finalize=self.written
        )
        self._turns = 0
        self._characters = 0
        self.filters = {name: self._measured(function) for name, function in self.filters.items()}
        self.filters["tojson"] = self._measured(_tojson)
        del self.globals["lipsum"]
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": lambda layout: now().strftime(layout),
            "namespace": _namespace,
        }

    def template(self, source: str) -> Template:
        """Compile a template with its budget built in.

        Raises:
            jinja2.TemplateError: a syntax error, with its line.
            RecursionError: nested too deeply.
        """
        tree = _Metering().visit(self.parse(source))
        return self.template_class.from_code(self, self.compile(tree), self.make_globals(None))

    def begin(self) -> None:
        """Give the next rendering a full budget."""
        self._turns = self._characters = 0

    def turn(self) -> None:
        """Count one turn of a loop or one call of a macro."""
        self._turns += 1
        if self._turns > MAX_TURNS:
            raise BudgetError(f"the template loops more than {MAX_TURNS:,} times")

    def written(self, value: object) -> object:
        """Count what an expression writes, be it into the prompt or into a variable."""
        if isinstance(value, str):
            self._characters += len(value)
            if self._characters > 2 * MAX_CHARACTERS:
                raise BudgetError(f"the template writes more than {2 * MAX_CHARACTERS:,} characters")
        return value

    def joined(self, parts: Iterable[object]) -> str:
        """The operator `~`."""
        text: str = _bounded("".join(map(str, parts)))
        return text

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ARG002  (jinja's)
        """Refuse an operator whose result would be huge before it is built."""
        if _result_size(operator, left, right) > MAX_CHARACTERS:
            raise BudgetError(f"the operator {operator} builds more than {MAX_CHARACTERS:,} characters or items")
        return self.binop_table[operator](left, right)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, macro or method, and measure what it returns."""
        method = getattr(function, "__wrapped__", function)
        if isinstance(text := getattr(method, "__self__", None), str):
            _check_widths([*args, *kwargs.values()])
            if method.__name__ in {"format", "format_map"} and _WIDE_FORMAT.search(text):
                raise BudgetError("the template formats with a width of six digits or more")
        return _bounded(super().call(context, function, *args, **kwargs))

    def _measured(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter whose arguments and result are measured. Marks such as `pass_context` stay on it."""

        @functools.wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            _check_widths([*args[1:], *kwargs.values()])
            if function.__name__ == "do_format" and _WIDE_FORMAT.search(str(args[0])):
                raise BudgetError("the template formats with a width of six digits or more")
            return _bounded(function(*args, **kwargs))

        return measured


class _Generation(Extension):
    """`{% generation %}` ... `{% endgeneration %}`: marks for training; the body is rendered as it stands."""

    tags = {"generation"}  # noqa: RUF012  (jinja's extensions declare it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Metering(NodeTransformer):
    """Puts a count at the head of each loop and macro, and has `~` measured."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  (jinja names visitors after the node)
        return self._count(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._count(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("joined", [nodes.List(node.nodes)], node.lineno)

    def _count(self, node: nodes.For | nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("turn", [], node.lineno)).set_lineno(node.lineno))
        return node


def _call(method: str, args: list[nodes.Expr], line: int) -> nodes.Call:
    """A call of one of the environment's methods, as a template's own call would be compiled."""
    call = nodes.Call(nodes.EnvironmentAttribute(method), args, [], None, None)
    call.set_lineno(line)
    return call


def _result_size(operator: str, left: object, right: object) -> int:
    """Characters, items, or a like measure of what `left operator right` would build."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * (max(right, 1) if operator == "**" else 1) + right.bit_length()
        return MAX_CHARACTERS + 1 if bits > _MAX_INTEGER_BITS else 0
    if operator == "+":
        return _length(left) + _length(right)
    if operator == "*":
        return max(_length(left) * _count_of(right), _length(right) * _count_of(left))
    if operator == "%" and isinstance(left, str) and _WIDE_FORMAT.search(left):
        return MAX_CHARACTERS + 1
    return 0


def _length(value: object) -> int:
    return len(value) if isinstance(value, str | list | tuple) else 0


def _count_of(value: object) -> int:
    return value if isinstance(value, int) else 0


def _check_widths(arguments: Iterable[object]) -> None:
    for argument in arguments:
        if isinstance(argument, int) and abs(argument) > MAX_CHARACTERS:
            raise BudgetError(f"the template asks for a width or count of {argument:,}; {MAX_CHARACTERS:,} is the most")


def _bounded(value: Any) -> Any:
    if _length(value) > MAX_CHARACTERS:
        raise BudgetError(f"the template builds more than {MAX_CHARACTERS:,} characters or items")
    return value


def _raise_exception(message: object) -> None:
    raise TemplateError(str(message))


def _tojson(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002  (templates pass it by position)
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """JSON as `transformers` writes it for templates: nothing is escaped for HTML, keys keep their order."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _GuardedNamespace(Namespace):
    """Jinja's `namespace`, without underscored names: they could shadow what Python looks up on objects."""

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _namespace(*args: Mapping[str, Any], **attributes: Any) -> Namespace:
    values = dict(*args, **attributes)
    for name in values:
        _check_name(name)
    return _GuardedNamespace(values)


def _check_name(name: str) -> None:
    if name.startswith("_"):
        raise SecurityError(f"a namespace cannot have an attribute named {name!r}")
