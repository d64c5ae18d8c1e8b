"""Who writes traces, and how: each format is its columns and a function from one record to one row.

Sources, as published: Azure/AzurePublicDataset (AzureLLMInferenceDataset2023 and 2024), kvcache-ai/Mooncake (FAST25
release), HPMLL/BurstGPT, alibaba-edu/qwen-bailian-usagetraces-anon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from chairlift.core.request import Nanoseconds
from chairlift.lab.loads.lengths import LONGEST
from chairlift.lab.loads.traces.trace import TraceRow
from chairlift.lab.loads.units import SECOND

Record = Mapping[str, Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write a trace."""

    columns: frozenset[str]
    """All must be there."""
    row: Callable[[Record], TraceRow]
    """Raises KeyError or ValueError (what is wrong with which column)."""
    block_tokens: int = 0
    """Tokens in a block that hash_ids name; 0 where there are none."""
    optional: frozenset[str] | None = None
    """What else may be there; None: anything, it is ignored."""


def _azure(record: Record) -> TraceRow:
    """TIMESTAMP is wall-clock time, with or without a zone; digits beyond the microsecond are dropped."""
    text = record["TIMESTAMP"]
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ValueError(f"TIMESTAMP is {text!r}; it is a date and a time") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return TraceRow(
        time=(moment - _EPOCH) // _MICROSECOND * 1000,
        prompt_tokens=_tokens(record, "ContextTokens"),
        output_tokens=_tokens(record, "GeneratedTokens"),
    )


def _burstgpt(record: Record) -> TraceRow:
    """Whole seconds. A failed request has 0 response tokens."""
    return TraceRow(
        time=_seconds(record, "Timestamp"),
        prompt_tokens=_tokens(record, "Request tokens"),
        output_tokens=_tokens(record, "Response tokens"),
        session=record.get("Session ID") or None,
    )


def _mooncake(record: Record) -> TraceRow:
    """Milliseconds, in ticks of 3 s."""
    return TraceRow(
        time=_whole(record, "timestamp") * 10**6,
        prompt_tokens=_tokens(record, "input_length"),
        output_tokens=_tokens(record, "output_length"),
        blocks=_names(record),
    )


def _bailian(record: Record) -> TraceRow:
    """Seconds with a fraction. parent_chat_id is -1 for a first turn."""
    parent = _whole(record, "parent_chat_id")
    return TraceRow(
        time=_seconds(record, "timestamp"),
        prompt_tokens=_tokens(record, "input_length"),
        output_tokens=_tokens(record, "output_length"),
        key=_whole(record, "chat_id"),
        parent=parent if parent >= 0 else None,
        blocks=_names(record),
    )


def _own(record: Record) -> TraceRow:
    """Seconds with a fraction; an empty optional column is an absent one."""
    given = {name: value for name, value in record.items() if value not in {None, ""}}
    return TraceRow(
        time=_seconds(record, "time_s"),
        prompt_tokens=_tokens(record, "prompt_tokens"),
        output_tokens=_tokens(record, "output_tokens"),
        session=given.get("session"),
        priority=_whole(given, "priority") if "priority" in given else None,
        deadline=_seconds(given, "deadline_s") if "deadline_s" in given else None,
        kind=str(given.get("class", "")),
    )


FORMATS: Final[Mapping[str, Format]] = {
    "azure": Format(frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}), _azure),
    "burstgpt": Format(frozenset({"Timestamp", "Request tokens", "Response tokens"}), _burstgpt),
    "bailian": Format(
        frozenset({"chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "hash_ids"}), _bailian, 16
    ),
    "mooncake": Format(frozenset({"timestamp", "input_length", "output_length", "hash_ids"}), _mooncake, 512),
    "own": Format(
        frozenset({"time_s", "prompt_tokens", "output_tokens"}),
        _own,
        optional=frozenset({"session", "priority", "deadline_s", "class"}),
    ),
}
"""The order matters: a record of the one with more columns would do for the one with fewer."""


def _whole(record: Record, column: str) -> int:
    value = record[column]
    if type(value) is int:
        return value
    try:
        return int(value) if isinstance(value, str) and value.isdecimal() else _exactly(Decimal(str(value)))
    except (InvalidOperation, OverflowError, ValueError):
        raise ValueError(f"{column} is {value!r}; it is a whole number") from None


def _tokens(record: Record, column: str) -> int:
    tokens = _whole(record, column)
    if tokens > LONGEST:
        raise ValueError(f"{column} is {tokens}; it is at most {LONGEST:,} tokens")
    return tokens


def _exactly(number: Decimal) -> int:
    """Some writers put 12.0 where they mean 12."""
    if number != int(number):
        raise ValueError
    return int(number)


def _seconds(record: Record, column: str) -> Nanoseconds:
    value = record[column]
    try:
        return math.floor(Decimal(str(value)) * SECOND)
    except (InvalidOperation, OverflowError, ValueError):
        raise ValueError(f"{column} is {value!r}; it is a number of seconds") from None


def _names(record: Record) -> tuple[int, ...]:
    names = record["hash_ids"]
    if not isinstance(names, list) or not all(type(name) is int for name in names):
        raise ValueError(f"hash_ids is {str(names)[:60]}; it is a list of whole numbers")
    return tuple(names)
