from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chairlift.core.errors import CorruptModel
from chairlift.runners.openvino.checkpoint import Linear, joined
from chairlift.runners.openvino.formats import open_checkpoint
from chairlift.runners.openvino.tensors import Encoding, StoredTensor
from tests.runners.openvino.helpers import MODELS


def test_both_formats_are_opened_by_path() -> None:
    """A file is read as GGUF, a folder as Hugging Face's."""
    assert open_checkpoint(MODELS / "qwen2.Q4_1.gguf").tokenizer != MODELS / "qwen2"
    assert open_checkpoint(MODELS / "qwen2").tokenizer == MODELS / "qwen2"


def test_a_path_that_is_not_there_says_what_to_give(tmp_path: Path) -> None:
    """The message names both formats."""
    with pytest.raises(FileNotFoundError, match=r"there is no model at .*GGUF file, or a folder with config.json"):
        open_checkpoint(tmp_path / "none.gguf")


def test_bytes_are_counted_as_stored() -> None:
    """Layers: every tensor once; head: the tied embedding when there is no other."""
    tied = open_checkpoint(MODELS / "qwen2.Q4_1.gguf")
    untied = open_checkpoint(MODELS / "llama-gqa.Q4_1.gguf")

    per_layer = 20 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 64) // 32 + 4 * 2 * 32
    assert untied.layer_weight_bytes == 2 * per_layer
    assert tied.shape(2).head_weight_bytes == tied.embedding.nbytes == 128 * 20
    assert untied.weight_bytes == untied.layer_weight_bytes + 2 * 128 * 20 + 4 * 32
    assert tied.weight_bytes == tied.layer_weight_bytes + 128 * 20 + 4 * 32


def test_the_shape_for_work_counts_follows_the_architecture() -> None:
    """Sizes as in the metadata, KV bytes by the cache's type."""
    shape = open_checkpoint(MODELS / "llama-gqa.F16.gguf").shape(kv_element_bytes=4)

    assert (shape.num_layers, shape.hidden_size, shape.num_heads, shape.num_kv_heads) == (2, 32, 4, 2)
    assert (shape.head_dim, shape.intermediate_size, shape.vocab_size) == (8, 64, 128)
    assert shape.kv_bytes_per_token == 2 * 2 * 2 * 8 * 4


def test_a_bias_of_another_length_is_damage() -> None:
    """Biases are checked like matrices."""
    checkpoint = open_checkpoint(MODELS / "qwen2.Q4_1.gguf")
    layer = checkpoint.layers[0]
    bias = StoredTensor("blk.0.attn_q.bias", Encoding.F32, (3,), np.zeros(3, np.float32))
    wrong = replace(layer, query=Linear(layer.query.weight, bias))

    with pytest.raises(CorruptModel, match=r"attn_q.bias has the shape \[3\], but .* needs \[128\]"):
        replace(checkpoint, layers=(wrong, *checkpoint.layers[1:]))


def test_matrices_are_joined_with_their_biases() -> None:
    """Query, key and value of a Qwen2 layer as one matrix: rows and biases in this order."""
    layer = open_checkpoint(MODELS / "qwen2").layers[0]
    three = (layer.query, layer.key, layer.value)

    together = joined(three)

    assert together is not None
    assert together.bias is not None
    biases = [linear.bias.to_float32() for linear in three if linear.bias is not None]
    assert np.array_equal(together.weight.to_float32(), np.concatenate([one.weight.to_float32() for one in three]))
    assert np.array_equal(together.bias.to_float32(), np.concatenate(biases))


def test_matrices_of_which_some_have_no_bias_are_not_joined() -> None:
    """Nor are those with weights of different encodings."""
    layer = open_checkpoint(MODELS / "qwen2").layers[0]
    other = open_checkpoint(MODELS / "llama-gqa.Q8_0.gguf").layers[0]

    assert joined((layer.query, replace(layer.key, bias=None))) is None
    assert joined((replace(layer.query, bias=None), other.key)) is None
