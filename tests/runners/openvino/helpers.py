"""What the OpenVINO tests share: the tiny models, plans from rows, a sampler that keeps logits, and a GGUF writer."""

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chairlift.core.plan import RowKind, StepPlan, TokenCounts
from chairlift.runners.base import Sampled
from chairlift.runners.openvino.runner import OpenVINORunner
from chairlift.runners.openvino.settings import KVCacheDtype, RunnerSettings, StepLimits

MODELS = Path(__file__).parents[2] / "fixtures" / "models"
"""Tiny random models; scripts/make_reference_fixtures.py made them."""

TOLERANCE = 2e-5
"""Largest difference in logits of up to 6 that f32 arithmetic in another order explains."""


@cache
def reference() -> Mapping[str, NDArray[Any]]:
    """The prompt, the positions, and transformers' logits there, by model."""
    with np.load(MODELS / "reference.npz") as arrays:
        return dict(arrays)


def model_names() -> list[str]:
    """All models with reference logits."""
    return [name for name in reference() if name not in ("prompt", "positions")]


def prompt() -> list[int]:
    """The reference prompt of 70 tokens."""
    tokens: list[int] = reference()["prompt"].tolist()
    return tokens


class KeepLogits:
    """A greedy sampler that keeps what it was shown.

    Attributes:
        logits: of the last step, [S, vocabulary].
        request_ids: of the last step.
    """

    def __init__(self) -> None:
        self.logits: NDArray[np.float32] = np.empty((0, 0), np.float32)
        self.request_ids: list[str] = []

    def __call__(self, request_ids: Sequence[str], logits: NDArray[np.float32]) -> Sampled:
        self.request_ids, self.logits = list(request_ids), logits.copy()
        return Sampled(logits.argmax(axis=1).tolist())


@dataclass(frozen=True)
class Row:
    """One row of a plan."""

    tokens: Sequence[int]
    start: int
    table: Sequence[int]
    samples: bool = True
    padding: int = 0
    kind: RowKind = RowKind.PREFILL
    name: str = ""


def plan_of(*rows: Row, step: int = 0) -> StepPlan:
    """A plan of these rows; those with one token have to come first."""
    singles = sum(1 for row in rows if row.kind in (RowKind.DECODE, RowKind.DEAD))
    padding = sum(row.padding for row in rows)
    dead = sum(len(row.tokens) for row in rows if row.kind is RowKind.DEAD)
    decode = singles - dead
    prefill = sum(len(row.tokens) for row in rows) - padding - dead - decode
    return StepPlan(
        step=step,
        now=0,
        policy="continuous",
        request_ids=tuple(row.name or f"r{index}" for index, row in enumerate(rows)),
        kinds=tuple(row.kind for row in rows),
        starts=tuple(row.start for row in rows),
        counts=tuple(len(row.tokens) for row in rows),
        paddings=tuple(row.padding for row in rows),
        samples=tuple(row.samples for row in rows),
        tokens=tuple(token for row in rows for token in row.tokens),
        tables=tuple(array("i", row.table) for row in rows),
        single_token_rows=singles,
        token_counts=TokenCounts(prefill=prefill, decode=decode, padding=padding, dead=dead),
    )


@dataclass
class Bench:
    """A runner on a tiny model with the sampler that watches it."""

    runner: OpenVINORunner
    seen: KeepLogits
    kv_cache_dtype: KVCacheDtype
    steps: int = field(default=0)

    def step(self, *rows: Row) -> NDArray[np.float32]:
        """Execute a plan of these rows; logits of its sampled rows, [S, vocabulary]."""
        self.seen.logits = np.empty((0, 0), np.float32)
        outcome = self.runner.execute(plan_of(*rows, step=self.steps))
        self.steps += 1
        assert outcome.device_time > 0
        sampled = self.seen.logits.argmax(axis=1).tolist() if len(self.seen.logits) else []
        assert list(outcome.tokens) == sampled
        return self.seen.logits


def open_bench(name: str, *, num_kv_blocks: int = 16, kv_cache_dtype: KVCacheDtype = "f32") -> Bench:
    """A runner on a tiny model."""
    seen = KeepLogits()
    limits = StepLimits(max_model_len=128, max_tokens=96, max_rows=8)
    settings = RunnerSettings(threads=1, kv_cache_dtype=kv_cache_dtype, num_kv_blocks=num_kv_blocks)
    return Bench(OpenVINORunner(MODELS / name, limits, seen, settings), seen, kv_cache_dtype)


def one_by_one(bench: Bench, tokens: Sequence[int], table: Sequence[int]) -> Iterator[NDArray[np.float32]]:
    """Logits at each position, computed by single-token steps."""
    for position, token in enumerate(tokens):
        yield bench.step(Row([token], position, table, kind=RowKind.DECODE))[0]


# --- GGUF files, made by hand so that they can be made wrong -------------------------------------------------------

GGML_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "Q6_K": 14, "BF16": 30}


def gguf_string(text: str) -> bytes:
    """Length and bytes."""
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_value(value: Any) -> bytes:
    """Type and value: strings, booleans, floats, other numbers as u32, lists of one kind."""
    match value:
        case str():
            return struct.pack("<I", 8) + gguf_string(value)
        case bool():
            return struct.pack("<I?", 7, value)
        case float():
            return struct.pack("<If", 6, value)
        case int():
            return struct.pack("<II", 4, value)
        case list():
            items = [gguf_value(item) for item in value]
            kind = items[0][:4] if items else struct.pack("<I", 4)
            return struct.pack("<I", 9) + kind + struct.pack("<Q", len(items)) + b"".join(item[4:] for item in items)
    raise TypeError(value)


@dataclass(frozen=True)
class GgufTensor:
    """A tensor to write: shape with rows first, raw bytes."""

    name: str
    shape: tuple[int, ...]
    kind: str
    raw: bytes


def gguf_bytes(metadata: Mapping[str, Any], tensors: Sequence[GgufTensor], version: int = 3) -> bytes:
    """A whole file."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(gguf_string(key) + gguf_value(value) for key, value in metadata.items())
    offset, data = 0, b""
    for tensor in tensors:
        head += gguf_string(tensor.name) + struct.pack("<I", len(tensor.shape))
        head += struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape))
        head += struct.pack("<IQ", GGML_TYPES[tensor.kind], offset)
        data += tensor.raw + bytes(-len(tensor.raw) % 32)
        offset = len(data)
    return head + bytes(-len(head) % 32) + data


def rewrite_gguf(source: Path, target: Path, changes: Mapping[str, Any], drop: Sequence[str] = ()) -> Path:
    """Copy a tiny GGUF file with metadata changed (None removes a key) and tensors left out."""
    from chairlift.runners.openvino.gguf import GgufFile  # noqa: PLC0415 - only this helper reads

    file = GgufFile(source)
    metadata = {key: value for key, value in {**file.metadata, **changes}.items() if value is not None}
    kinds = {number: label for label, number in GGML_TYPES.items()}
    tensors = [
        GgufTensor(name, info.shape, kinds[info.ggml_type], file.tensor(name).data.tobytes())
        for name, info in file.tensors.items()
        if name not in drop
    ]
    target.write_bytes(gguf_bytes(metadata, tensors))
    return target
