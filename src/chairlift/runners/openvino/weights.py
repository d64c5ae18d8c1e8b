"""Weights as graph nodes: constants as the file has them, and the arithmetic that the plugin folds into its kernels.

Nothing is inflated: a matrix stays in the bytes it has on disk (Q4 nibbles change places), and the plugin multiplies
from there. For that it must find Constant -> Convert -> [Subtract] -> Multiply -> [Reshape] on quantised data, and on
half precision a Convert that carries the mark below; without the mark it computes f32 copies when it compiles.
"""

from __future__ import annotations

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as ops
from openvino.op import Constant

from chairlift.runners.openvino.tensors import BLOCK, Encoding, StoredTensor, split_blocks

KEEP_COMPRESSED = "decompression_0"
"""Mark on a Convert: what it reads stays as it is (OpenVINO's attribute `decompression`, version 0)."""

SMALLEST_STEP = np.float32(1e-12)
"""Stands in for a Q4_1 scale of zero, where all weights of the block equal its minimum: the zero point divides by
it."""


def weight(tensor: StoredTensor, *, shared: bool = True) -> ov.Node:
    """A node that yields the matrix [outputs, inputs] as f32.

    Args:
        tensor: the matrix.
        shared: its data outlives the compiled model and need not be copied, where the encoding allows it.
    """
    match tensor.encoding:
        case Encoding.F32:
            return ops.constant(tensor.data, shared_memory=shared)
        case Encoding.F16 | Encoding.BF16:
            return _half(tensor, shared=shared)
        case Encoding.Q8_0:
            return _q8_0(tensor)
        case Encoding.Q4_0:
            return _q4_0(tensor)
        case Encoding.Q4_1:
            return _q4_1(tensor)


def vector(tensor: StoredTensor) -> ov.Node:
    """A small tensor (a norm's gains, a bias) as an f32 constant."""
    return ops.constant(tensor.to_float32())


def _half(tensor: StoredTensor, *, shared: bool) -> ov.Node:
    if tensor.encoding is Encoding.F16:
        stored = ops.constant(tensor.data, shared_memory=shared)
    else:
        # numpy has no bf16, and a tensor over foreign memory does not keep that memory alive: the checkpoint does.
        stored = Constant(ov.Tensor(tensor.data, ov.Shape(list(tensor.shape)), ov.Type.bf16), shared_memory=shared)
    node = ops.convert(stored, "f32")
    node.get_rt_info()[KEEP_COMPRESSED] = ""
    return node


def _q8_0(tensor: StoredTensor) -> ov.Node:
    scales, packed = split_blocks(tensor)
    stored = ov.Tensor(ov.Type.i8, ov.Shape(packed.shape))
    stored.data[...] = packed.view(np.int8)
    return _blocks(stored, scales.astype(np.float32), tensor.shape)


def _q4_0(tensor: StoredTensor) -> ov.Node:
    scales, packed = split_blocks(tensor)
    stored = _nibbles(packed, ov.Type.i4)
    # Flipping the top bit of a nibble turns q into q - 8 in four-bit two's complement.
    stored.data.view(np.uint8)[...] ^= np.uint8(0x88)
    return _blocks(stored, scales.astype(np.float32), tensor.shape)


def _q4_1(tensor: StoredTensor) -> ov.Node:
    """Write w = d q + m as d (q - z) with the fractional zero point z = -m / d."""
    scales, packed = split_blocks(tensor)
    both = scales.astype(np.float32)
    step, minimum = np.ascontiguousarray(both[..., :1]), both[..., 1:]
    step[step == 0] = SMALLEST_STEP
    return _blocks(_nibbles(packed, ov.Type.u4), step, tensor.shape, zero_point=-minimum / step)


def _blocks(
    stored: ov.Tensor,
    scales: NDArray[np.float32],
    shape: tuple[int, ...],
    zero_point: NDArray[np.float32] | None = None,
) -> ov.Node:
    """(stored - zero_point) * scales, [rows, blocks, 32], as [rows, inputs]."""
    node = ops.convert(Constant(stored, shared_memory=True), "f32")
    if zero_point is not None:
        node = ops.subtract(node, ops.constant(zero_point))
    target = ops.constant(np.array(shape, np.int64))
    return ops.reshape(ops.multiply(node, ops.constant(scales)), target, special_zero=False)


def _nibbles(packed: NDArray[np.uint8], kind: ov.Type) -> ov.Tensor:
    """A four-bit tensor [rows, blocks, 32] from ggml's nibbles.

    ggml's byte j holds weights j and j + 16 of a block, OpenVINO's holds 2 j and 2 j + 1; both the first in the low
    half.
    """
    *outer, size = packed.shape
    stored = ov.Tensor(kind, ov.Shape([*outer, BLOCK]))
    out = stored.data.view(np.uint8).reshape(packed.shape)
    low, high = packed & 15, packed >> 4
    out[..., : size // 2] = low[..., 0::2] | low[..., 1::2] << 4
    out[..., size // 2 :] = high[..., 0::2] | high[..., 1::2] << 4
    return stored
