import re
from pathlib import Path

from chairlift.cli.main import COMMANDS
from chairlift.lab.studies.catalogue import CATALOGUE

PAGE = (Path(__file__).parents[3] / "docs" / "studies.md").read_text(encoding="utf-8")


def test_the_page_shows_every_study_and_no_other() -> None:
    """As commands, and in the order in which they should be read."""
    assert list(dict.fromkeys(re.findall(r"chairlift study (\w+)", PAGE)))[: len(CATALOGUE)] == list(CATALOGUE)


def test_commands_and_flags_on_the_page_exist() -> None:
    """Whatever is written as a command is one."""
    assert set(re.findall(r"`?chairlift (\w+)", PAGE)) <= COMMANDS.keys()


def test_the_page_says_nothing_of_the_machine_it_was_written_on() -> None:
    """No paths but a reader's own."""
    assert not re.search(r"/(tmp|root|home|work)/", PAGE)
