"""Short ways to loads and schedules."""

from pathlib import Path

from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.request import At, ScheduledRequest
from chairlift.lab.loads.schedule import Schedule

FIXTURES = Path(__file__).parent / "fixtures"
LENGTHS = "prompt=100 output=20"


def load(pairs: str, folder: Path = FIXTURES) -> Load:
    """Of key=value pairs in one text."""
    return load_from_pairs(pairs.split(), folder)


def schedule(pairs: str, folder: Path = FIXTURES) -> Schedule:
    """Of key=value pairs in one text; a token of a transcript is a word."""
    return Schedule(load(pairs, folder), count_tokens=lambda text: len(text.split()))


def requests(pairs: str, folder: Path = FIXTURES) -> list[ScheduledRequest]:
    """All of a load's requests."""
    return list(schedule(pairs, folder))


def dues(items: list[ScheduledRequest]) -> list[int]:
    """When they start, for those that start at a time of their own."""
    return [item.start.due for item in items if isinstance(item.start, At)]
