"""What the tests of devices share: a small model whose numbers are easy to follow, and strategies for any model."""

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from chairlift.devices.curve import Table
from chairlift.devices.memory import MemoryModel
from chairlift.devices.model import DeviceModel, HostTerms, Provenance, StepTerms
from chairlift.devices.quantities import read_time
from chairlift.devices.valid import ValidRange

EXCERPT = Path(__file__).parent / "fixtures" / "splitwise_excerpt.csv"
MIB = 1 << 20


def terms(**times: str) -> StepTerms:
    """Coefficients written with units."""
    values: dict[str, Any] = {name: read_time(time) for name, time in times.items()}
    return StepTerms(**values)


def device_model(step: StepTerms | None = None, host: HostTerms | None = None, **fields: Any) -> DeviceModel:
    """A device model with a wide range."""
    return DeviceModel(
        device="test",
        model="model",
        tensor_parallel=1,
        provenance=Provenance("calibrated"),
        step=step or StepTerms(),
        host=host or HostTerms(),
        valid=ValidRange(tokens=8192, rows=256, context=32_768, total_context=1_000_000),
        **fields,
    )


MEMORY = MemoryModel(
    capacity=1000 * MIB,
    weights=400 * MIB,
    runtime=50 * MIB,
    kv_bytes_per_token=MIB // 16,
    unseen=30 * MIB,
    activation_per_token=MIB // 8,
    activation_per_logits=MIB,
)
"""1,000 MiB: a block of 16 tokens is 1 MiB, a step of 512 tokens and 8 rows of logits needs 72 MiB."""

COEFFICIENTS = st.integers(0, 10**10)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Rising and falling curves over up to 3,000."""
    xs = sorted(draw(st.sets(st.integers(0, 3_000), min_size=2, max_size=6)))
    ys = draw(st.lists(st.integers(0, 10**12), min_size=len(xs), max_size=len(xs)))
    return Table(tuple(xs), tuple(ys))


@st.composite
def step_terms(draw: st.DrawFn) -> StepTerms:
    """Any coefficients, with and without tables."""
    kinds = {name: st.none() | tables() if name.endswith("table") else COEFFICIENTS for name in StepTerms.__slots__}
    values: dict[str, Any] = {name: draw(kind) for name, kind in kinds.items()}
    return StepTerms(**values)
