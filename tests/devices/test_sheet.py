import pytest

from chairlift.core.errors import DeviceModelError
from chairlift.devices.registry import device_names, find_sheet
from chairlift.devices.sheet import MEANINGS, DeviceSheet, Figure, cpu_sheet, parse_sheet


@pytest.mark.parametrize("name", device_names())
def test_every_figure_of_a_built_in_sheet_says_where_it_is_from(name: str) -> None:
    """And what several work as one by has a link."""
    sheet = find_sheet(name)

    assert sheet.name == name
    assert all(figure.source for figure in sheet.figures.values())
    assert sheet.most_devices == 1 or {"link_bandwidth", "link_latency", "link_efficiency"} <= sheet.figures.keys()


@pytest.mark.parametrize(
    ("name", "bandwidth", "bf16", "gib"),
    [
        ("a100-80gb-sxm", 2.039e12, 312e12, 80),
        ("h100-sxm", 3.35e12, 989.4e12, 80),
        ("h200-sxm", 4.8e12, 989.4e12, 141),
        ("l4", 300e9, 121e12, 24),
        ("l40s", 864e9, 362e12, 48),
        ("rtx-4090", 1.008e12, 165.2e12, 24),
        ("mi300x", 5.3e12, 1307.4e12, 192),
    ],
)
def test_built_in_peaks_are_the_vendors(name: str, bandwidth: float, bf16: float, gib: float) -> None:
    """Dense, without sparsity; the memory is what the driver reports of the nominal size."""
    sheet = find_sheet(name)

    assert sheet["bandwidth"] == bandwidth
    assert sheet.flops("bf16") == bf16
    assert 0.92 * gib < sheet["memory"] / 2**30 <= gib


def test_a_precision_that_the_device_lacks_is_refused() -> None:
    """An A100 has no 8-bit floats; those that it has are named."""
    with pytest.raises(DeviceModelError, match="multiplies in bf16, f32, int8, not in f8"):
        find_sheet("a100").flops("f8")


def test_a_sheet_for_a_processor_is_made_of_three_numbers() -> None:
    """Memory, bandwidth and arithmetic as given; the rest is said to be assumed."""
    sheet = cpu_sheet(memory=16 << 30, bandwidth=17e9, flops_f32=128e9, source="measured")

    assert sheet["bandwidth"] == 17e9
    assert sheet.figures["flops_f32"].source == "measured"
    assert "assumed" in sheet.figures["layer_overhead"].source


def test_other_figures_carry_their_own_source() -> None:
    """A person who knows better says so."""
    sheet = find_sheet("l4").with_figures("measured by me", bandwidth_efficiency=0.9)

    assert sheet.figures["bandwidth_efficiency"] == Figure(0.9, "measured by me")
    assert sheet["bandwidth"] == 300e9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bandwidth": None}, "lacks the figure bandwidth"),
        ({"bandwith": 1.0}, "unknown figure bandwith"),
        ({"compute_efficiency": 1.2}, "compute_efficiency is 1.2"),
        ({"memory": -1.0}, "memory is -1"),
        ({"memory": float("nan")}, "memory is nan"),
    ],
)
def test_an_impossible_sheet_is_refused(change: dict[str, float | None], message: str) -> None:
    """Missing, unknown, and impossible figures."""
    figures = dict(find_sheet("l4").figures)
    for name, value in change.items():
        figures.pop(name, None)
        if value is not None:
            figures[name] = Figure(value, "test")

    with pytest.raises(DeviceModelError, match=message):
        DeviceSheet("x", "X", 1, figures)


def test_a_figure_without_a_source_is_refused() -> None:
    """In a file, each has both."""
    with pytest.raises(DeviceModelError, match=r"figure\.bandwidth\.source is missing"):
        parse_sheet("name = 'x'\ntitle = 'X'\n[figure.bandwidth]\nvalue = 1e9", "x.toml")


def test_figures_have_a_meaning_with_a_unit() -> None:
    """Bytes, seconds, operations or a share."""
    assert all(any(unit in text for unit in ("bytes", "second", "share")) for text in MEANINGS.values())
