"""One description of a model on disk, whatever the format: what it is, and its tensors by role."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chairlift.core.errors import CorruptModel
from chairlift.core.work import ModelShape
from chairlift.runners.openvino.architecture import Architecture
from chairlift.runners.openvino.tensors import StoredTensor


@dataclass(frozen=True, slots=True)
class Linear:
    """A matrix [outputs, inputs], and a bias [outputs] or none."""

    weight: StoredTensor
    bias: StoredTensor | None = None


def joined(linears: Sequence[Linear]) -> Linear | None:
    """One matrix with the rows of all, and its bias; None where they are encoded differently or only some have biases.
    Copies the tensors.
    """
    weights = [linear.weight for linear in linears]
    biases = [linear.bias for linear in linears if linear.bias is not None]
    if len(biases) not in (0, len(linears)):
        return None
    weight = weights[0].with_rows_of(weights[1:])
    bias = biases[0].with_rows_of(biases[1:]) if biases else None
    return None if weight is None or (biases and bias is None) else Linear(weight, bias)


@dataclass(frozen=True, slots=True)
class LayerTensors:
    """One transformer layer. Rows of query and key rotate as halves (row i with row i + head_dim / 2)."""

    attention_norm: StoredTensor
    query: Linear
    key: Linear
    value: Linear
    attention_output: Linear
    feed_forward_norm: StoredTensor
    gate: Linear
    up: Linear
    down: Linear

    def __iter__(self) -> Iterator[StoredTensor]:
        yield self.attention_norm
        yield self.feed_forward_norm
        for linear in (self.query, self.key, self.value, self.attention_output, self.gate, self.up, self.down):
            yield linear.weight
            if linear.bias is not None:
                yield linear.bias


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model that can be built. Tensors are views of its files: keep it until the graph is compiled."""

    path: Path
    architecture: Architecture
    embedding: StoredTensor
    """[vocabulary, hidden]."""
    layers: tuple[LayerTensors, ...]
    norm: StoredTensor
    head: StoredTensor | None
    """[vocabulary, hidden]; None when the embedding serves as output head too."""
    tokenizer: Mapping[str, Any] | Path
    """Where the tokenizer is described: the metadata of a GGUF file, or the folder that holds tokenizer.json."""
    release: Callable[[], None]
    """Gives the pages of the files that were read back to the system."""

    def __post_init__(self) -> None:
        """Raises CorruptModel when a tensor's shape is not what the architecture says."""
        check_shapes(self)

    @property
    def vocab_size(self) -> int:
        return self.embedding.shape[0]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors as stored."""
        head = 0 if self.head is None else self.head.nbytes
        return self.embedding.nbytes + self.layer_weight_bytes + self.norm.nbytes + head

    @property
    def layer_weight_bytes(self) -> int:
        """Bytes of all layers' tensors as stored."""
        return sum(tensor.nbytes for layer in self.layers for tensor in layer)

    def shape(self, kv_element_bytes: int) -> ModelShape:
        """The sizes that decide how much work a step is."""
        arch = self.architecture
        return ModelShape(
            num_layers=arch.num_layers,
            hidden_size=arch.hidden_size,
            num_heads=arch.num_heads,
            num_kv_heads=arch.num_kv_heads,
            head_dim=arch.head_dim,
            intermediate_size=arch.intermediate_size,
            vocab_size=self.vocab_size,
            layer_weight_bytes=self.layer_weight_bytes,
            head_weight_bytes=(self.head or self.embedding).nbytes,
            kv_element_bytes=kv_element_bytes,
        )


def check_shapes(checkpoint: Checkpoint) -> None:
    """Compare every tensor with what the architecture needs.

    Raises:
        CorruptModel: one differs; the message has both shapes.
    """
    arch = checkpoint.architecture
    hidden, inner, vocab = arch.hidden_size, arch.intermediate_size, checkpoint.vocab_size
    queries, keys = arch.num_heads * arch.head_dim, arch.num_kv_heads * arch.head_dim
    _check(checkpoint.embedding, (vocab, hidden))
    _check(checkpoint.norm, (hidden,))
    if checkpoint.head is not None:
        _check(checkpoint.head, (vocab, hidden))
    for layer in checkpoint.layers:
        _check(layer.attention_norm, (hidden,))
        _check(layer.feed_forward_norm, (hidden,))
        for linear, outputs, inputs in (
            (layer.query, queries, hidden),
            (layer.key, keys, hidden),
            (layer.value, keys, hidden),
            (layer.attention_output, hidden, queries),
            (layer.gate, inner, hidden),
            (layer.up, inner, hidden),
            (layer.down, hidden, inner),
        ):
            _check(linear.weight, (outputs, inputs))
            if linear.bias is not None:
                _check(linear.bias, (outputs,))


def _check(tensor: StoredTensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise CorruptModel(
            f"tensor {tensor.name} has the shape {list(tensor.shape)}, but the model's description needs "
            f"{list(shape)}. "
            f"The file does not belong to its configuration: fetch the model again."
        )
