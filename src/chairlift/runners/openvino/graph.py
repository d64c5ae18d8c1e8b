"""The model as an OpenVINO graph around its paged-attention operation.

One call computes any mixture of prompt chunks and single tokens: T tokens in rows one after the other, S of whose
hidden states go through the output head. Inputs, by name:

    input_ids, position_ids        i64 [T]
    past_lens                      i32 [rows]: tokens of each row that the cache holds already
    subsequence_begins             i32 [rows + 1]: where each row's tokens begin
    block_indices                  i32 [n]: the rows' block tables, joined
    block_indices_begins           i32 [rows + 1]: where each row's table begins
    max_context_len                i32 []: the longest past + new
    sampled                        i64 [S]: which tokens' logits are wanted
    key_cache.L, value_cache.L     [blocks, kv_heads, 32, head_dim] for each layer L

The output is f32 [S, vocabulary].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import openvino as ov
from openvino import opset13 as ops
from openvino.op import _PagedAttentionExtension as PagedAttention

from chairlift.core.errors import UnsupportedModel
from chairlift.runners.openvino.architecture import Architecture
from chairlift.runners.openvino.checkpoint import Checkpoint, LayerTensors, Linear, joined
from chairlift.runners.openvino.tensors import StoredTensor
from chairlift.runners.openvino.weights import vector, weight

BLOCK_SIZE = 32
"""Tokens in a KV block: fixed by OpenVINO's CPU kernel."""

STEP_INPUTS: tuple[tuple[str, type[np.generic], list[int]], ...] = (
    ("input_ids", np.int64, [-1]),
    ("position_ids", np.int64, [-1]),
    ("past_lens", np.int32, [-1]),
    ("subsequence_begins", np.int32, [-1]),
    ("block_indices", np.int32, [-1]),
    ("block_indices_begins", np.int32, [-1]),
    ("max_context_len", np.int32, []),
    ("sampled", np.int64, [-1]),
)


def build_graph(checkpoint: Checkpoint) -> ov.Model:
    """The graph of a checkpoint; its constants share the checkpoint's memory where the encoding allows it."""
    return _Builder(checkpoint.architecture).build(checkpoint)


@dataclass(frozen=True, slots=True)
class KernelCounts:
    """Operations of a compiled model that decide whether it is the one that was meant."""

    paged_attention: int
    rope: int
    other_attention: int
    """Attention or cache operations outside paged attention: there must be none."""


def count_kernels(compiled: ov.CompiledModel) -> KernelCounts:
    """Look at what the plugin made of the graph."""
    kinds = [operation.get_rt_info()["layerType"].astype(str) for operation in compiled.get_runtime_model().get_ops()]
    foreign = (
        "ScaledDotProductAttention",
        "ScaledDotProductAttentionWithKVCache",
        "MHA",
        "MemoryInput",
        "ReadValue",
        "Softmax",
    )
    return KernelCounts(kinds.count("PagedAttention"), kinds.count("RoPE"), sum(kinds.count(kind) for kind in foreign))


def check_compiled(compiled: ov.CompiledModel, architecture: Architecture) -> None:
    """Make sure that every layer runs OpenVINO's paged attention and fused rotary positions.

    Raises:
        UnsupportedModel: it does not; answers would be wrong or very slow.
    """
    counts = count_kernels(compiled)
    expected = KernelCounts(architecture.num_layers, 2 * architecture.num_layers, 0)
    if counts != expected:
        raise UnsupportedModel(
            f"OpenVINO {ov.get_version()} compiled the model to {counts}, not {expected}: it did not recognise "
            "the graph. "
            f"Install the OpenVINO version that this release pins."
        )


class _Builder:
    """Places the operations. Small constants that every layer needs are made once: each node costs compile time."""

    def __init__(self, architecture: Architecture) -> None:
        self._arch = architecture
        self._inputs = {name: _parameter(name, kind, shape) for name, kind, shape in STEP_INPUTS}
        self._caches: list[ov.Node] = []
        self._epsilon = _f32(architecture.norm_epsilon)
        self._two, self._one, self._minus_one = _f32(2.0), _f32(1.0), _f32(-1.0)
        self._last = _i64([-1])
        half = architecture.head_dim // 2
        self._zero, self._unit, self._half, self._end, self._axis = (_i64([n]) for n in (0, 1, half, 1 << 62, 3))
        self._attention_tail = _attention_tail(self._inputs["max_context_len"])
        self._scale = _f32(architecture.head_dim**-0.5)
        self._query_shapes = self._head_shapes(architecture.num_heads)
        self._key_shapes = self._head_shapes(architecture.num_kv_heads)
        self._cosine, self._sine = self._rotations()

    def build(self, checkpoint: Checkpoint) -> ov.Model:
        embedding = weight(checkpoint.embedding)
        hidden = ops.gather(embedding, self._inputs["input_ids"], _i64(0))
        for index, layer in enumerate(checkpoint.layers):
            hidden = self._layer(hidden, layer, index)
        hidden = ops.gather(hidden, self._inputs["sampled"], _i64(0))
        head = embedding if checkpoint.head is None else weight(checkpoint.head)
        logits = ops.matmul(self._norm(hidden, checkpoint.norm), head, transpose_a=False, transpose_b=True)
        logits.output(0).set_names({"logits"})
        return ov.Model([ops.result(logits)], [*self._inputs.values(), *self._caches], "chairlift")

    def _layer(self, hidden: ov.Node, layer: LayerTensors, index: int) -> ov.Node:
        normed = self._norm(hidden, layer.attention_norm)
        query, key, value = _products(normed, (layer.query, layer.key, layer.value))
        attended = self._attention(
            self._rotate(query, self._query_shapes), self._rotate(key, self._key_shapes), value, index
        )
        hidden = ops.add(hidden, _linear(attended, layer.attention_output))
        normed = self._norm(hidden, layer.feed_forward_norm)
        # The plugin folds the swish into the gate's product; as an operation of its own it costs a tenth of a prefill.
        gated = ops.multiply(ops.swish(_linear(normed, layer.gate)), _linear(normed, layer.up))
        return ops.add(hidden, _linear(gated, layer.down))

    def _norm(self, hidden: ov.Node, gains: StoredTensor) -> ov.Node:
        mean = ops.reduce_mean(ops.power(hidden, self._two), self._last, keep_dims=True)
        inverse = ops.divide(self._one, ops.sqrt(ops.add(mean, self._epsilon)))
        return ops.multiply(ops.multiply(hidden, inverse), vector(gains))

    def _head_shapes(self, heads: int) -> tuple[ov.Node, ov.Node]:
        """Targets of the reshapes [T, heads * d] -> [T, heads, 1, d] and back; 0 keeps T."""
        return _i64([0, heads, 1, self._arch.head_dim]), _i64([0, heads * self._arch.head_dim])

    def _rotations(self) -> tuple[ov.Node, ov.Node]:
        """Cosine and sine of position times frequency, [T, 1, 1, head_dim]."""
        frequencies = self._arch.inverse_frequencies
        both = ops.constant(np.concatenate([frequencies, frequencies]).reshape(1, 1, 1, -1))
        positions = ops.unsqueeze(ops.convert(self._inputs["position_ids"], "f32"), _i64([1, 2, 3]))
        angles = ops.multiply(positions, both)
        return ops.cos(angles), ops.sin(angles)

    def _rotate(self, flat: ov.Output, shapes: tuple[ov.Node, ov.Node]) -> ov.Node:
        """Rotary positions on [T, heads * d]. The plugin fuses this spelling; others it leaves in pieces."""
        heads = ops.reshape(flat, shapes[0], special_zero=True)
        first = ops.slice(heads, self._zero, self._half, self._unit, self._axis)
        second = ops.slice(heads, self._half, self._end, self._unit, self._axis)
        turned = ops.concat([ops.multiply(second, self._minus_one), first], axis=-1)
        rotated = ops.add(ops.multiply(heads, self._cosine), ops.multiply(turned, self._sine))
        return ops.reshape(rotated, shapes[1], special_zero=True)

    def _attention(self, query: ov.Node, key: ov.Node, value: ov.Output, index: int) -> ov.Node:
        """[T, heads * d] of the layer; writes keys and values to its caches on the way."""
        caches = [_cache(f"{role}_cache.{index}") for role in ("key", "value")]
        self._caches += caches
        named = ("past_lens", "subsequence_begins", "block_indices", "block_indices_begins")
        rest = [*caches, *(self._inputs[name] for name in named), self._scale, *self._attention_tail]
        attention = PagedAttention([query.output(0), key.output(0), value, *(node.output(0) for node in rest)])
        info = attention.get_rt_info()
        for letter in "kv":
            info[f"num_{letter}_heads"] = self._arch.num_kv_heads
            info[f"{letter}_head_size"] = self._arch.head_dim
        return ops.reshape(attention.output(0), self._query_shapes[1], special_zero=True)


def _linear(hidden: ov.Node, linear: Linear, *, shared: bool = True) -> ov.Node:
    product = ops.matmul(hidden, weight(linear.weight, shared=shared), transpose_a=False, transpose_b=True)
    return product if linear.bias is None else ops.add(product, vector(linear.bias))


def _products(hidden: ov.Node, linears: tuple[Linear, ...]) -> list[ov.Output]:
    """One product with all of these matrices, if they are stored alike: small ones occupy the cores badly, and a step
    of one row is a seventh shorter without them.
    """
    together = joined(linears)
    if together is None:
        return [_linear(hidden, linear).output(0) for linear in linears]
    sizes = [linear.weight.shape[0] for linear in linears]
    product = _linear(hidden, together, shared=False)
    outputs: list[ov.Output] = ops.variadic_split(product, _i64(1), _i64(sizes)).outputs()
    return outputs


def _attention_tail(max_context_len: ov.Node) -> list[ov.Node]:
    """Inputs 10 to 27 of the operation in OpenVINO 2026.4; empty or zero switches a feature off."""

    def empty(kind: type[np.generic], rank: int = 1) -> ov.Node:
        return ops.constant(np.zeros((0,) * rank, kind))

    zero, nothing, no_floats = ops.constant(np.zeros((), np.int32)), empty(np.int32), empty(np.float32)
    return [
        zero,  # sliding_window
        no_floats,  # alibi_slopes
        max_context_len,
        nothing,  # score_aggregation_window
        nothing,  # rotated_block_indices
        nothing,  # rotation_deltas
        no_floats,  # rotation_trig_lut
        no_floats,  # xattention_threshold
        zero,  # xattention_block_size
        zero,  # xattention_stride
        empty(np.float32, 4),  # sinks
        zero,  # adaptive_rkv_start_size
        nothing,  # adaptive_rkv_evictable_sizes
        nothing,  # adaptive_rkv_diversity_block_set_indices
        nothing,  # adaptive_rkv_diversity_block_set_indices_begins
        nothing,  # token_type_ids
        empty(np.uint8),  # qq_bias
        nothing,  # qq_bias_begins
    ]


def _parameter(name: str, kind: type[np.generic], shape: list[int]) -> ov.Node:
    parameter = ops.parameter(shape, kind, name=name)
    parameter.output(0).set_names({name})
    return parameter


def _cache(name: str) -> ov.Node:
    """A cache whose type and shape the plugin sets from KV_CACHE_PRECISION."""
    parameter = ops.parameter([-1, -1, -1, -1], ov.Type.dynamic, name=name)
    parameter.output(0).set_names({name})
    return parameter


def _f32(value: float) -> ov.Node:
    return ops.constant(np.array(value, np.float32))


def _i64(value: int | list[int]) -> ov.Node:
    return ops.constant(np.array(value, np.int64))
