"""The two files of an offline batch: requests by line, and answers that may end in the middle of one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chairlift.core.errors import RecordError, RequestError

_ID = "batch_req_"
_BEGINNING = f'{{"id":"{_ID}'.encode()
"""Of every line of the output."""


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One request of the input."""

    number: int
    custom_id: str
    url: str
    body: Mapping[str, Any]


def check_input(source: Path) -> int:
    """Look at every line before anything is run. Returns how many there are.

    Raises:
        RequestError: a line is malformed, or an id comes twice; the message has the line's number.
        RecordError: the file cannot be read.
    """
    seen: dict[str, int] = {}
    for line in read_lines(source):
        if line.custom_id in seen:
            raise RequestError(
                f"line {line.number} of {source} has the custom_id {line.custom_id!r} of line {seen[line.custom_id]}: "
                "ids must be unique, for the answers are told apart by them."
            )
        seen[line.custom_id] = line.number
    return len(seen)


def answered_ids(target: Path) -> set[str]:
    """Ids in the output of an earlier run; a last line that was cut off is removed from the file.

    Raises:
        RecordError: it cannot be read or mended, or has lines that are no answers.
    """
    try:
        if not target.exists():
            return set()
        _mend(target)
        with target.open(encoding="utf-8") as lines:
            return {json.loads(line)["custom_id"] for line in lines}
    except OSError as error:
        raise RecordError(f"{target} cannot be read: {error}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise RecordError(
            f"{target} has lines that are no answers of a batch ({error}): give another output file, or remove it."
        ) from error


def answer_line(number: int, custom_id: str, status: int, body: Mapping[str, Any]) -> str:
    """One line of the output, its end included. ASCII, since an id may hold what no UTF-8 can."""
    row = {
        "id": f"{_ID}{number}",
        "custom_id": custom_id,
        "response": {"status_code": status, "request_id": f"{custom_id}#0", "body": body},
        "error": None,
    }
    return json.dumps(row, separators=(",", ":")) + "\n"


def _mend(target: Path) -> None:
    """Cut the file after its last whole line, reading from its end only; but a file that does not begin as ours do is
    somebody's, and stays as it is.
    """
    with target.open("rb+") as file:
        beginning = file.read(len(_BEGINNING))
        if not _BEGINNING.startswith(beginning):
            raise ValueError(f"it begins with {beginning.decode('utf-8', 'replace')!r}")
        size = file.seek(0, 2)
        end = size
        while end:
            start = max(0, end - 65_536)
            file.seek(start)
            if (place := file.read(end - start).rfind(b"\n")) >= 0:
                end = start + place + 1
                break
            end = start
        if end != size:
            file.truncate(end)


def read_lines(source: Path) -> Iterator[BatchLine]:
    """The requests of a file one by one, blank lines passed over. Raises as check_input."""
    try:
        with source.open(encoding="utf-8") as lines:
            for number, text in enumerate(lines, start=1):
                if text.strip():
                    yield _line(source, number, text)
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{source} cannot be read: {error}") from error


def _line(source: Path, number: int, text: str) -> BatchLine:
    where = f"line {number} of {source}"
    try:
        row = json.loads(text)
    except ValueError as error:
        raise RequestError(f"{where} is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise RequestError(f"{where} is no JSON object.")
    for name, kind, wanted in (("custom_id", str, "a string"), ("url", str, "a string"), ("body", dict, "an object")):
        if not isinstance(row.get(name), kind):
            raise RequestError(f"{where} has {name} {row.get(name)!r}; it must be {wanted}.")
    if row.get("method", "POST") != "POST":
        raise RequestError(f"{where} has method {row['method']!r}; it must be POST.")
    return BatchLine(number, row["custom_id"], row["url"], row["body"])
