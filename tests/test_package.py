"""Tests of the package as a whole."""

import importlib.metadata
from importlib.resources import files

import chairlift


def test_the_version_is_the_installed_one() -> None:
    """The version in the source and the one in the package's metadata are the same."""
    assert chairlift.__version__ == importlib.metadata.version("chairlift")


def test_the_package_is_typed() -> None:
    """The marker that makes type checkers read our annotations is part of the package."""
    assert files("chairlift").joinpath("py.typed").is_file()
