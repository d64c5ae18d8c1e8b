"""How weights lie on disk: encodings, and one tensor as a view of its file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chairlift.core.errors import CorruptModel

BLOCK = 32
"""Weights that share a scale in Q8_0, Q4_0 and Q4_1."""


class Encoding(Enum):
    """What the bytes of a tensor mean. Quantised ones hold rows of blocks of 32 weights, each block behind its scale.

    Layouts as ggml defines them (ggml-common.h): Q8_0 is f16 d, 32 x int8 q; Q4_0 is f16 d, 16 bytes of which byte j
    holds weight j (low nibble) and j + 16 (high), w = d (q - 8); Q4_1 is f16 d, f16 m, the same nibbles, w = d q + m.
    """

    F32 = ("F32", 1, 4)
    F16 = ("F16", 1, 2)
    BF16 = ("BF16", 1, 2)
    Q8_0 = ("Q8_0", BLOCK, 34)
    Q4_0 = ("Q4_0", BLOCK, 18)
    Q4_1 = ("Q4_1", BLOCK, 20)

    def __init__(self, label: str, block_weights: int, block_bytes: int) -> None:
        self.label = label
        self.block_weights = block_weights
        self.block_bytes = block_bytes

    @property
    def quantised(self) -> bool:
        """Whether weights share scales."""
        return self.block_weights > 1

    def row_bytes(self, weights: int) -> int:
        """Bytes of a row; `weights` must be a multiple of block_weights."""
        return weights // self.block_weights * self.block_bytes


SUPPORTED_ENCODINGS = ", ".join(encoding.label for encoding in Encoding)

_ELEMENTS: dict[Encoding, type[np.generic]] = {
    Encoding.F32: np.float32,
    Encoding.F16: np.float16,
    Encoding.BF16: np.uint16,
}


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A tensor as its file stores it."""

    name: str
    """Its name in the file."""
    encoding: Encoding
    shape: tuple[int, ...]
    """In weights, rows first: [outputs, inputs] for a matrix."""
    data: NDArray[Any]
    """float32, float16 or uint16 (bf16 bits) of that shape; quantised: uint8 [..., bytes of a row]."""

    @classmethod
    def view(cls, name: str, encoding: Encoding, shape: tuple[int, ...], raw: NDArray[np.uint8]) -> StoredTensor:
        """Look at `raw` (flat bytes, exactly as many as the shape takes) without copying it."""
        if encoding.quantised:
            data: NDArray[Any] = raw.reshape(*shape[:-1], encoding.row_bytes(shape[-1]))
        else:
            data = raw.view(_ELEMENTS[encoding]).reshape(shape)
        return cls(name, encoding, shape, data)

    @property
    def nbytes(self) -> int:
        """Bytes as stored."""
        return self.data.nbytes

    def halves_from_pairs(self, heads: int) -> StoredTensor:
        """Reorder the rows of each head from rotated pairs (0, 1), (2, 3), … to halves (0, d/2), (1, d/2 + 1), ….

        llama.cpp stores the query and key projections of the Llama family so that neighbouring rows rotate together;
        the kernels here rotate halves. Whole rows move, so quantised data stays as it is. Copies this tensor.

        Raises:
            CorruptModel: the rows are not `heads` times an even number.
        """
        rows, *rest = self.data.shape
        if rows % (2 * heads):
            raise CorruptModel(
                f"tensor {self.name} has {rows} rows, which {heads} heads cannot share. Fetch the model again."
            )
        pairs = self.data.reshape(heads, rows // heads // 2, 2, *rest)
        return replace(self, data=np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(self.data.shape))

    def with_rows_of(self, others: Sequence[StoredTensor]) -> StoredTensor | None:
        """This tensor's rows and then theirs, as stored; None where one is encoded otherwise. Copies."""
        if any(other.encoding is not self.encoding for other in others):
            return None
        every = (self, *others)
        return replace(
            self,
            name=" + ".join(tensor.name for tensor in every),
            shape=(sum(tensor.shape[0] for tensor in every), *self.shape[1:]),
            data=np.concatenate([tensor.data for tensor in every]),
        )

    def to_float32(self) -> NDArray[np.float32]:
        """The weights themselves, [shape], f32. Copies unless stored as F32."""
        if self.encoding is Encoding.F32:
            return self.data
        if self.encoding is Encoding.F16:
            return self.data.astype(np.float32)
        if self.encoding is Encoding.BF16:
            return (self.data.astype(np.uint32) << 16).view(np.float32)
        return dequantise(self)


def split_blocks(tensor: StoredTensor) -> tuple[NDArray[np.float16], NDArray[np.uint8]]:
    """Scales [..., blocks, 1 or 2] (d, and m for Q4_1) and packed weights [..., blocks, bytes], of a quantised one."""
    encoding = tensor.encoding
    blocks = tensor.data.reshape(*tensor.data.shape[:-1], -1, encoding.block_bytes)
    header = 4 if encoding is Encoding.Q4_1 else 2
    return np.ascontiguousarray(blocks[..., :header]).view(np.float16), blocks[..., header:]


def dequantise(tensor: StoredTensor) -> NDArray[np.float32]:
    """The weights of a quantised tensor, [shape], f32."""
    scales, packed = split_blocks(tensor)
    step = scales[..., :1].astype(np.float32)
    if tensor.encoding is Encoding.Q8_0:
        values = packed.view(np.int8).astype(np.float32) * step
    else:
        nibbles = np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.float32)
        if tensor.encoding is Encoding.Q4_0:
            values = (nibbles - 8) * step
        else:
            values = nibbles * step + scales[..., 1:].astype(np.float32)
    return values.reshape(tensor.shape)
