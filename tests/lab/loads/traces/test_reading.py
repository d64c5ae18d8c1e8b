from pathlib import Path

import pytest

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.traces import read_trace
from tests.lab.loads.making import FIXTURES


@pytest.mark.parametrize(
    ("file", "name", "rows", "left_out"),
    [
        ("AzureLLMInferenceTrace_conv.csv", "azure", 40, {}),
        ("AzureLLMInferenceTrace_code.csv", "azure", 40, {}),
        ("mooncake_conversation_trace.jsonl", "mooncake", 60, {}),
        ("burstgpt.csv", "burstgpt", 9, {"failed: 0 output tokens": 1}),
        ("qwen_bailian.jsonl", "bailian", 6, {}),
    ],
)
def test_each_format_is_recognised_by_its_columns(file: str, name: str, rows: int, left_out: dict[str, int]) -> None:
    """The comment with the licence is passed over, failures are counted; naming the format does no harm."""
    trace = read_trace(FIXTURES / file)

    assert (trace.format, len(trace), trace.left_out) == (name, rows, left_out)
    assert trace.times[0] == 0
    assert list(trace.times) == sorted(trace.times)
    assert read_trace(FIXTURES / file, name) == trace


def test_azures_lengths_and_times_are_as_recorded() -> None:
    """The first rows of the conversation trace."""
    trace = read_trace(FIXTURES / "AzureLLMInferenceTrace_conv.csv")

    assert list(trace.prompt_tokens[:3]) == [374, 396, 879]
    assert list(trace.output_tokens[:3]) == [44, 109, 55]
    assert list(trace.times[:3]) == [0, 4_314_579_000, 4_541_877_000]


def test_own_logs_are_read_as_csv_and_as_json_lines(tmp_path: Path) -> None:
    """The same requests, in any order of time, with Windows line ends and a byte-order mark or without."""
    table = tmp_path / "own.csv"
    table.write_bytes(
        b"\xef\xbb\xbftime_s,prompt_tokens,output_tokens,session,deadline_s\r\n"
        b'2.5,10,3,"a, b",\r\n\r\n'
        b'0.5,20,4,"a, b",1.5\r\n'
    )
    lines = tmp_path / "own.jsonl"
    lines.write_text(
        '{"time_s": 2.5, "prompt_tokens": 10, "output_tokens": 3, "session": "a, b"}\n'
        '{"time_s": 0.5, "prompt_tokens": 20, "output_tokens": 4, "session": "a, b", "deadline_s": 1.5}\n'
    )

    one, other = read_trace(table), read_trace(lines)

    assert one.format == other.format == "own"
    assert list(one.times) == list(other.times) == [0, 2_000_000_000]
    assert list(one.prompt_tokens) == list(other.prompt_tokens) == [20, 10]
    assert list(one.turns) == list(other.turns) == [0, 1]
    assert one.deadlines == other.deadlines == {0: 1_500_000_000}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no request in it"),
        ("time_s,prompt_tokens,output_tokens\n", "has no request in it"),
        ("time_s,prompt_tokens,output_tokens\n1,2,0\n1,0,2\n", r"no request in it \(1 rows left out: failed: 0 output"),
        ("a,b\n1,2\n", "is of no known format. Its columns are a, b. Known are: azure: ContextTokens, "),
        ("time_s,prompt_tokens,output_tokens\n1,2\n", "line 2: 2 columns, where the header has 3"),
        ("time_s,prompt_tokens,output_tokens\n#\n\n1,x,3\n", "line 4: prompt_tokens is 'x'; it is a whole number"),
        ("time_s,prompt_tokens,output_tokens,sesion\n1,2,3,4\n", "the column 'sesion' is unknown; did you mean"),
        ("time_s,prompt_tokens,output_tokens,zz\n1,2,3,4\n", "the column 'zz' is unknown; there are class,"),
        ('{"time_s": 1\n', "line 1: no JSON"),
        ('{"time_s": 1, "prompt_tokens": 2, "output_tokens": 3}\n5\n', "line 2: 5 is no JSON object"),
        ('{"time_s": 1, "prompt_tokens": 2, "output_tokens": 3}\n{"time_s": 1}\n', "line 2: 'prompt_tokens' is"),
    ],
)
def test_a_wrong_trace_is_refused_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    """Empty, of no known format, or wrong in a line."""
    path = tmp_path / "trace"
    path.write_text(content)

    with pytest.raises(ConfigError, match=message):
        read_trace(path)


def test_a_trace_of_another_format_than_said_is_refused() -> None:
    """With a column that is missing for it."""
    with pytest.raises(ConfigError, match="is no azure: it has no 'ContextTokens'; its columns are timestamp"):
        read_trace(FIXTURES / "mooncake_conversation_trace.jsonl", "azure")


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """It is not there, or is no text."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match=r"none\.csv cannot be read: No such file"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(ConfigError, match="binary is no text"):
        read_trace(tmp_path / "binary")
