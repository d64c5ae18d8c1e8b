"""Flags as a person can paste them: a command line, YAML, protobuf's text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from chairlift.advisor.flags.flags import Flag, FrameworkFlags, setting_name

Tree = dict[str, "Tree | str"]


def arguments(said: FrameworkFlags) -> list[str]:
    """The flags as an argument vector, without the command itself."""
    words: list[str] = []
    for one in said.flags:
        if one.place == "argument":
            words += [one.name, one.value] if one.value else [one.name]
    return words


def command_line(said: FrameworkFlags) -> str:
    """With backslashes, a flag a line; empty where the framework takes everything from a file."""
    flags = [one for one in said.flags if one.place == "argument"]
    start = said.framework.start
    if not flags and said.framework.file is not None and said.framework.file_argument is None:
        return start
    lines = [start]
    if said.framework.file_argument is not None and config_file(said):
        lines.append(said.framework.file_argument)
    lines += [f"{one.name} {one.value}".rstrip() for one in flags]
    return " \\\n    ".join(lines)


def config_file(said: FrameworkFlags) -> str:
    """What stands in the framework's configuration file; empty where it needs none."""
    yaml = [one for one in said.flags if one.place == "yaml"]
    text = [one for one in said.flags if one.place == "text"]
    if yaml:
        return "\n".join(_yaml(_tree(yaml), "")) + "\n"
    if text:
        return "\n".join(_text(_tree(text), "", wrapped=said.framework.wrapped)) + "\n"
    return ""


def report_lines(said: FrameworkFlags) -> Iterator[str]:
    """For people: what to paste, why, and what is lost."""
    file = config_file(said)
    yield f"{said.framework.title} {said.version}" + (
        "" if said.version == said.framework.checked else f" (the table was checked with {said.framework.checked})"
    )
    yield ""
    yield command_line(said)
    if file and said.framework.file is not None:
        yield ""
        yield f"{said.framework.file}:"
        yield from (f"    {line}" for line in file.splitlines())
    yield ""
    width = max((len(one.name) for one in said.flags), default=0)
    for one in said.flags:
        yield f"{one.name:<{width}}  {one.reason}"
    if said.unexpressed:
        yield ""
        yield "cannot be said:"
        for lost in said.unexpressed:
            yield f"  {setting_name(lost.setting)} {lost.value}: {lost.why}"


def sources(said: FrameworkFlags) -> list[str]:
    """Where it is written, each once."""
    return sorted({one.source for one in said.flags} | {one.source for one in said.unexpressed})


def _tree(flags: Iterable[Flag]) -> Tree:
    tree: Tree = {}
    for one in flags:
        at = tree
        *folders, leaf = one.name.split(".")
        for folder in folders:
            inner = at.setdefault(folder, {})
            if isinstance(inner, dict):
                at = inner
        at[leaf] = one.value
    return tree


def _yaml(tree: Mapping[str, Tree | str], indent: str) -> Sequence[str]:
    lines = []
    for key, value in tree.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}:", *_yaml(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {value}")
    return lines


def _text(tree: Mapping[str, Tree | str], indent: str, *, wrapped: bool) -> Sequence[str]:
    lines = []
    for key, value in tree.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key} {{", *_text(value, indent + "  ", wrapped=wrapped), f"{indent}}}"]
        elif wrapped:
            lines.append(f"{indent}{key} {{ value: {value} }}")
        else:
            lines.append(f"{indent}{key}: {value}")
    return lines
