"""argparse with errors that say the flag, the value and what would do."""

from __future__ import annotations

import argparse
import difflib
import shutil
from collections.abc import Sequence
from typing import Any, NoReturn

from chairlift.cli.units import Kind
from chairlift.core.errors import ConfigError


class Parser(argparse.ArgumentParser):
    """A parser for one command. It never exits by itself: every complaint is a ConfigError."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False, formatter_class=_Formatter)

    @property
    def flags(self) -> list[str]:
        """All flags, for close matches."""
        return [name for name in self._option_string_actions if name.startswith("--")]

    def format_help(self) -> str:
        """As argparse, but the usage line does not repeat every flag."""
        arguments = [str(action.metavar or action.dest) for action in self._get_positional_actions()]
        self.usage = " ".join([self.prog, *arguments, "[flags]"])
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raises ConfigError with the message and where to read on."""
        raise ConfigError(f"{message if message.endswith('?') else message.rstrip('.') + '.'} See {self.prog} --help.")

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse a command's arguments.

        Raises:
            ConfigError: an unknown flag, a wrong value, a missing argument.
        """
        for argument in argv:
            if argument == "--":
                break
            name = argument.partition("=")[0]
            if argument.startswith("--") and name not in self.flags:
                self._unknown(name)
        arguments, extra = self.parse_known_args(argv)
        if extra:
            if extra[0].startswith("-"):
                self._unknown(extra[0])
            self.error(f"{extra[0]!r} is one argument too many")
        return arguments

    def _unknown(self, name: str) -> NoReturn:
        near = difflib.get_close_matches(name.replace("_", "-"), self.flags, n=3, cutoff=0.65)
        self.error(f"there is no flag {name}" + (f"; did you mean {' or '.join(near)}?" if near else ""))


class ReadValue(argparse.Action):
    """Reads a flag's value as its kind; a wrong one is named together with its flag."""

    def __init__(self, option_strings: Sequence[str], dest: str, kind: Kind, **options: Any) -> None:
        super().__init__(option_strings, dest, metavar=kind.metavar, **options)
        self._kind = kind

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Raises ConfigError (through the parser) when the value is not of the kind."""
        try:
            setattr(namespace, self.dest, self._kind.read(str(values)))
        except ValueError as error:
            parser.error(f"{option_string} is {values!r}; it takes {error}")


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str, **kwargs: Any) -> None:
        kwargs["width"] = min(shutil.get_terminal_size().columns, 110)
        super().__init__(prog, max_help_position=28, **kwargs)
