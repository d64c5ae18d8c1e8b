import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from chairlift.core.errors import DeviceModelError
from chairlift.devices.table import Columns, MeasuredTable, measured_table, read_table
from tests.devices.helpers import EXCERPT

Row = dict[str, str]


@pytest.fixture(scope="module")
def excerpt() -> MeasuredTable:
    """213 rows of splitwise-sim's table."""
    return read_table(EXCERPT)


def rows_of(
    prefill: Callable[[int, int], float], prompts: tuple[int, ...] = (128, 512, 1024), **fixed: str
) -> list[Row]:
    """A made-up group: three prompt sizes at batch 1, and batches of 512."""
    settings = [(prompt, 1) for prompt in prompts] + [(512, batch) for batch in (2, 4, 8)]
    return [
        {
            "model": "m",
            "hardware": "h",
            "tensor_parallel": "1",
            "prompt_size": str(prompt),
            "batch_size": str(batch),
            "token_size": "128",
            "prompt_time": str(prefill(prompt, batch)),
            "token_time": "20.5",
            **fixed,
        }
        for prompt, batch in settings
    ]


@pytest.mark.parametrize(("hardware", "tokens"), [("a100-80gb", "794 ms"), ("h100-80gb", "362 ms")])
def test_the_broken_rows_of_the_published_table_are_found(excerpt: MeasuredTable, hardware: str, tokens: str) -> None:
    """Tensor parallel 2 with batch 64: four times the tokens in an eighth of the time. Left out, and said why."""
    group = excerpt.group("llama2-70b", hardware, 2)

    (finding,) = group.findings
    assert "prompt 512, batch 64" in finding
    assert f"32,768 tokens takes {tokens}" in finding
    assert max(setting.batch for setting in group.times) == 32


def test_sound_groups_of_the_published_table_stay_whole(excerpt: MeasuredTable) -> None:
    """At tensor parallel 4 and 8 the same batch takes twice as long, as it should."""
    for hardware, parallel in (("h100-80gb", 4), ("a100-80gb", 8)):
        group = excerpt.group("llama2-70b", hardware, parallel)
        assert group.findings == ()
        assert max(setting.batch for setting in group.times) == 64


def test_rows_given_twice_and_groups_computed_from_others_are_found(excerpt: MeasuredTable) -> None:
    """Three rows repeat others to the last digit; the power-capped device's times are the other's times 1.3 and 1."""
    repeated, derived = excerpt.findings

    assert repeated.startswith("3 rows repeat")
    assert "h100-80gb-pcap" in derived
    assert "1.3 times that of h100-80gb and every decode time 1 times" in derived


def test_samples_are_steps(excerpt: MeasuredTable) -> None:
    """A decode is in the middle of its answer; runs that differ in output alone repeat the same prefill."""
    group = excerpt.group("llama2-70b", "h100-80gb", 4)
    decode = next(s for s in group.decode_samples if "prompt 512, batch 8" in s.name)
    prefill = next(s for s in group.prefill_samples if s.name.endswith("prompt 512, batch 1"))

    assert decode.shape.context == 8 * (512 + 64)
    assert decode.shape.rows == 8
    assert prefill.shape.tokens == 512
    assert len(prefill.times) == 6, "three repeats with output 128 and three with 1,024"


def test_the_smaller_one_is_blamed_where_it_is_the_odd_one() -> None:
    """A prompt of 512 that took ten times as long as all others say."""
    rows = rows_of(lambda prompt, batch: 10 * prompt * batch * (1 if (prompt, batch) != (512, 1) else 10))

    (finding,) = measured_table(rows, "t").group("m", "h", 1).findings

    assert finding.startswith("m on h, tensor parallel 1, prompt 512, batch 1, output 128:")


def test_noise_is_no_contradiction() -> None:
    """A larger prefill may be a fifth faster than a smaller one."""
    rows = rows_of(lambda prompt, batch: 800.0 if batch == 4 else 1000.0)

    assert measured_table(rows, "t").group("m", "h", 1).findings == ()


@pytest.mark.parametrize(
    ("column", "value"), [("prompt_time", "0"), ("token_time", "nan"), ("batch_size", "x"), ("token_size", "0")]
)
def test_a_row_that_cannot_be_is_left_out_by_its_line(column: str, value: str) -> None:
    """Times and sizes are positive numbers."""
    rows = rows_of(lambda prompt, batch: prompt * batch)
    rows[1][column] = value

    table = measured_table(rows, "t")

    assert table.findings == ("rows without positive numbers, left out: line 3.",)
    assert len(table.group("m", "h", 1).times) == 5


def test_other_columns_and_units_are_named() -> None:
    """Seconds instead of milliseconds, another header."""
    rows = [
        {("seconds" if k == "prompt_time" else k): v for k, v in row.items()} for row in rows_of(lambda p, b: p * b)
    ]

    table = measured_table(rows, "t", Columns(prefill="seconds", nanoseconds=1e9))

    assert table.group("m", "h", 1).prefill_samples[0].times == (128 * 10**9,)
    with pytest.raises(DeviceModelError, match="t has no column 'prompt_time'"):
        measured_table(rows, "t")


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    """No file, no rows, and a group that is not there."""
    with pytest.raises(DeviceModelError, match="cannot be read as a CSV file"):
        read_table(tmp_path / "gone.csv")
    with pytest.raises(DeviceModelError, match="no row that can be read"):
        measured_table([], "t")
    with pytest.raises(DeviceModelError, match="it has: m on h, tensor parallel 1"):
        measured_table(rows_of(lambda p, b: p * b), "t").group("m", "h", 2)


def test_the_excerpt_is_the_size_that_its_licence_file_says() -> None:
    """213 rows."""
    with EXCERPT.open(encoding="utf-8") as file:
        assert sum(1 for _ in csv.DictReader(file)) == 213
    assert "213 of 1,260 rows" in EXCERPT.with_suffix(".LICENSE").read_text("utf-8")
