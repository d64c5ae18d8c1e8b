from decimal import Decimal
from typing import Any

import pytest

from chairlift.lab.loads.traces.formats import FORMATS
from chairlift.lab.loads.traces.trace import TraceRow

AZURE = {"TIMESTAMP": "2023-11-16 18:17:03.9799600", "ContextTokens": "4808", "GeneratedTokens": "10"}
MOONCAKE = {"timestamp": 2999, "input_length": 600, "output_length": 5, "hash_ids": [0, 7]}
BURSTGPT = {"Timestamp": "5", "Session ID": "101", "Request tokens": "472", "Response tokens": "18.0", "Model": "GPT-4"}
BAILIAN = {
    "chat_id": 159,
    "parent_chat_id": 55,
    "timestamp": Decimal("61.114"),
    "input_length": 521,
    "output_length": 132,
    "type": "text",
    "turn": 2,
    "hash_ids": [1089, 1090],
}
OWN = {"time_s": "0.25", "prompt_tokens": "9", "output_tokens": "3", "session": "a", "priority": "-1", "class": "x"}


def read(name: str, record: dict[str, Any]) -> TraceRow:
    """One row."""
    return FORMATS[name].row(record)


def test_azure_has_wall_clock_times() -> None:
    """To the microsecond, with a zone (as in 2024) or without (as in 2023)."""
    row = read("azure", AZURE)
    zoned = read("azure", AZURE | {"TIMESTAMP": "2023-11-16 19:17:03.979960+01:00"})

    assert (row.prompt_tokens, row.output_tokens) == (4808, 10)
    assert row.time == zoned.time == 1_700_158_623_979_960_000


def test_mooncake_has_milliseconds_and_blocks_of_512() -> None:
    """The names of its blocks come along."""
    assert read("mooncake", MOONCAKE) == TraceRow(2_999_000_000, 600, 5, blocks=(0, 7))
    assert FORMATS["mooncake"].block_tokens == 512


def test_burstgpt_has_seconds_and_may_have_sessions() -> None:
    """A row without a session, or of a release without the column, stands alone."""
    assert read("burstgpt", BURSTGPT) == TraceRow(5 * 10**9, 472, 18, session="101")
    assert read("burstgpt", BURSTGPT | {"Session ID": ""}).session is None
    assert read("burstgpt", {key: value for key, value in BURSTGPT.items() if key != "Session ID"}).session is None


def test_bailian_has_parents_and_blocks_of_16() -> None:
    """-1 is no parent."""
    assert read("bailian", BAILIAN) == TraceRow(61_114_000_000, 521, 132, key=159, parent=55, blocks=(1089, 1090))
    assert read("bailian", BAILIAN | {"parent_chat_id": -1}).parent is None
    assert FORMATS["bailian"].block_tokens == 16


def test_own_has_optional_columns() -> None:
    """What is empty or absent is not said."""
    assert read("own", OWN) == TraceRow(250_000_000, 9, 3, session="a", priority=-1, kind="x")
    assert read("own", OWN | {"session": "", "priority": "", "class": "", "deadline_s": "1.5"}) == TraceRow(
        250_000_000, 9, 3, deadline=1_500_000_000
    )


@pytest.mark.parametrize(
    ("name", "record", "message"),
    [
        ("azure", AZURE | {"TIMESTAMP": "yesterday"}, "TIMESTAMP is 'yesterday'; it is a date and a time"),
        ("azure", AZURE | {"ContextTokens": "many"}, "ContextTokens is 'many'; it is a whole number"),
        ("azure", AZURE | {"ContextTokens": "1.5"}, "ContextTokens is '1.5'; it is a whole number"),
        ("azure", AZURE | {"ContextTokens": "inf"}, "ContextTokens is 'inf'; it is a whole number"),
        ("azure", AZURE | {"ContextTokens": "9999999999"}, "ContextTokens is 9999999999; it is at most 1,000,000,000"),
        ("burstgpt", BURSTGPT | {"Timestamp": "NaN"}, "Timestamp is 'NaN'; it is a number of seconds"),
        ("mooncake", MOONCAKE | {"hash_ids": "0,7"}, "hash_ids is 0,7; it is a list of whole numbers"),
        ("mooncake", MOONCAKE | {"hash_ids": [0, "7"]}, r"hash_ids is \[0, '7'\]; it is a list of whole numbers"),
        ("bailian", BAILIAN | {"timestamp": None}, "timestamp is None; it is a number of seconds"),
    ],
)
def test_a_wrong_value_is_named(name: str, record: dict[str, Any], message: str) -> None:
    """With its column and what would do."""
    with pytest.raises(ValueError, match=message):
        read(name, record)
