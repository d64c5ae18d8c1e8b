"""What a policy costs those who run it: settings that they have to choose, and code that has to be right."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from chairlift.core.config import PolicyName

SETTINGS: Final[Mapping[PolicyName, tuple[str, ...]]] = {
    "static": ("batch_size", "max_wait"),
    "dynamic": ("max_batch_size", "max_queue_delay", "preferred_batch_sizes"),
    "continuous": (
        "max_num_seqs",
        "max_num_batched_tokens",
        "enable_chunked_prefill",
        "watermark",
        "prefill_interval",
        "prefill_interval_load",
        "target_itl",
    ),
}
"""Settings that only matter, or matter most, under each policy; those of memory are common to all."""
_CORE: Final = "chairlift.core."
_OWN: Final = (f"{_CORE}policies.", f"{_CORE}batchers.")
_ENTRY: Final[Mapping[PolicyName, str]] = {
    "static": f"{_CORE}batchers.closed",
    "dynamic": f"{_CORE}batchers.closed",
    "continuous": f"{_CORE}batchers.continuous",
}


def policy_modules(policy: PolicyName) -> list[str]:
    """The scheduler's modules that run this policy and not just any: what its batcher imports of policies and batchers,
    and again what those import; without the other policies' pages.
    """
    others = {f"{_CORE}policies.{name}" for name in SETTINGS if name != policy}
    found: dict[str, None] = {}
    waiting = [_ENTRY[policy]]
    while waiting:
        name = waiting.pop()
        if name not in found and name not in others:
            found[name] = None
            waiting += _imports(_source(name))
    return sorted(found)


def lines_of_policy(policy: PolicyName) -> int:
    """Lines of code of those modules, without blank lines, comments and docstrings."""
    return sum(lines_of_code(_source(name)) for name in policy_modules(policy))


def lines_of_code(source: str) -> int:
    """Lines that hold code: no blank lines, no comments, no docstrings."""
    skipped = {line for node in ast.walk(ast.parse(source)) for line in _docstring_lines(node)}
    kept = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(kept - skipped)


_NO_CODE: Final = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


def _docstring_lines(node: ast.AST) -> Iterator[int]:
    """Of a string that stands as a statement: a docstring, or one under a field."""
    match node:
        case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=int() as last):
            yield from range(first, last + 1)


def _imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(_OWN):
            yield node.module


def _source(module: str) -> str:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    return Path(spec.origin).read_text(encoding="utf-8")
