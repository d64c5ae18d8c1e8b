from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chairlift.core.errors import CorruptModel, UnsupportedModel
from chairlift.runners.openvino.architecture import inverse_frequencies
from chairlift.runners.openvino.from_gguf import ROPE_FACTORS, read_gguf
from chairlift.runners.openvino.gguf import GgufFile
from chairlift.runners.openvino.tensors import Encoding
from tests.runners.openvino.helpers import MODELS, rewrite_gguf

LLAMA = MODELS / "llama-gqa.Q8_0.gguf"
QWEN2 = MODELS / "qwen2.Q4_1.gguf"


def changed(folder: Path, changes: dict[str, Any], source: Path = LLAMA, drop: tuple[str, ...] = ()) -> Path:
    """The tiny model with other metadata."""
    return rewrite_gguf(source, folder / "m.gguf", changes, drop)


def test_sizes_come_from_the_metadata() -> None:
    """The tiny Llama: two layers, hidden 32, four heads of eight on two key-value heads."""
    arch = read_gguf(LLAMA).architecture

    assert (arch.num_layers, arch.hidden_size, arch.intermediate_size) == (2, 32, 64)
    assert (arch.num_heads, arch.num_kv_heads, arch.head_dim) == (4, 2, 8)
    assert arch.context_length == 256
    assert arch.norm_epsilon == pytest.approx(1e-5)
    assert arch.sliding_window is None


def test_weights_keep_their_encoding_and_norms_are_f32() -> None:
    """Nothing is inflated on the way in."""
    checkpoint = read_gguf(LLAMA)

    assert checkpoint.embedding.encoding is Encoding.Q8_0
    assert {tensor.encoding for tensor in checkpoint.layers[0] if len(tensor.shape) == 2} == {Encoding.Q8_0}
    assert checkpoint.norm.encoding is Encoding.F32


def test_rows_that_llama_cpp_paired_are_halves_again() -> None:
    """Query and key rows of a Llama move, those of value and of Qwen2 stay."""
    llama, qwen2 = read_gguf(LLAMA).layers[0], read_gguf(QWEN2).layers[0]
    in_file, in_qwen2 = GgufFile(LLAMA).tensor, GgufFile(QWEN2).tensor

    assert np.array_equal(llama.query.weight.data[:8], in_file("blk.0.attn_q.weight").data[[0, 2, 4, 6, 1, 3, 5, 7]])
    assert np.array_equal(llama.value.weight.data, in_file("blk.0.attn_v.weight").data)
    assert np.array_equal(qwen2.query.weight.data, in_qwen2("blk.0.attn_q.weight").data)


def test_biases_and_tied_embeddings_show_in_the_tensors() -> None:
    """Qwen2 has query, key and value biases and no output matrix of its own; the Llama the other way round."""
    llama, qwen2 = read_gguf(LLAMA), read_gguf(QWEN2)

    assert qwen2.head is None
    assert llama.head is not None
    biased = [linear.bias is not None for linear in (qwen2.layers[1].query, qwen2.layers[1].value, qwen2.layers[1].up)]
    assert biased == [True, True, False]
    assert llama.layers[1].query.bias is None


def test_the_tokenizer_is_described_by_the_metadata() -> None:
    """The raw metadata is handed on."""
    tokenizer = read_gguf(LLAMA).tokenizer

    assert isinstance(tokenizer, dict)
    assert tokenizer["general.architecture"] == "llama"


def test_rope_factors_divide_the_frequencies() -> None:
    """Llama 3's scaling comes as a tensor of divisors."""
    path = MODELS / "llama-rope3.Q8_0.gguf"
    factors = GgufFile(path).tensor(ROPE_FACTORS).data

    scaled = read_gguf(path).architecture.inverse_frequencies

    assert factors.max() == pytest.approx(8.0)
    assert scaled.tolist() == pytest.approx((inverse_frequencies(16, 10000.0) / factors).tolist())


@pytest.mark.parametrize(
    "changes",
    [{"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}, {"llama.rope.scale_linear": 2.0}],
)
def test_linear_scaling_divides_under_its_new_and_old_key(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Both keys make rotations half as fast."""
    scaled = read_gguf(changed(tmp_path, changes)).architecture.inverse_frequencies

    assert scaled.tolist() == pytest.approx((read_gguf(LLAMA).architecture.inverse_frequencies / 2).tolist())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": "gemma3"}, "architecture is 'gemma3'.*families llama, mistral, qwen2"),
        ({"llama.expert_count": 8}, "mixture of 8 experts"),
        ({"llama.rope.scaling.type": "yarn"}, "rotary positions by 'yarn'"),
        ({"llama.rope.dimension_count": 4}, "rotates 4 of 8 dimensions"),
        ({"llama.attention.value_length": 16}, "keys have 8 dimensions and its values 16"),
        ({"llama.attention.head_count_kv": [2, 1]}, "head_count_kv differs from layer to layer"),
        ({"split.count": 3}, "one of 3 parts .*llama-gguf-split --merge"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """Other architectures, experts, rope types, partial rotation, uneven heads, split files."""
    with pytest.raises(UnsupportedModel, match=message):
        read_gguf(changed(tmp_path, changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": None}, "does not say its general.architecture"),
        ({"llama.block_count": None}, "llama.block_count is missing"),
        ({"llama.embedding_length": "wide"}, "llama.embedding_length is str, not a number"),
        ({"llama.attention.head_count": 0}, "has 0 attention heads"),
        ({"llama.attention.head_count": 6}, "has 32 rows, which 6 heads cannot share"),
        ({"llama.feed_forward_length": 65}, r"ffn_gate.weight has the shape \[64, 32\], but .* needs \[65, 32\]"),
        ({"llama.block_count": 3}, r"has no tensor blk.2"),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0}, "rope scaling factor is 0"),
    ],
)
def test_what_contradicts_itself_is_damage(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """Missing or wrong metadata, and tensors that do not fit it, are named."""
    with pytest.raises(CorruptModel, match=message):
        read_gguf(changed(tmp_path, changes))


def test_rope_factors_of_another_length_are_damage(tmp_path: Path) -> None:
    """Divisors for heads of 16 do not fit heads of 32."""
    changes = {f"llama.{key}": 32 for key in ("attention.key_length", "attention.value_length", "rope.dimension_count")}

    with pytest.raises(CorruptModel, match=r"rope_freqs.weight .* has the shape \[8\], not \[16\]"):
        read_gguf(changed(tmp_path, changes, MODELS / "llama-rope3.Q8_0.gguf"))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    """A file without its last norm is incomplete."""
    with pytest.raises(CorruptModel, match=r"has no tensor output_norm.weight"):
        read_gguf(changed(tmp_path, {}, drop=("output_norm.weight",)))


def test_tensors_that_the_family_does_not_know_are_refused(tmp_path: Path) -> None:
    """Fewer layers than the file has: running it would skip the rest."""
    with pytest.raises(UnsupportedModel, match=r"tensors that family does not know: blk.1.attn_k.weight, "):
        read_gguf(changed(tmp_path, {"llama.block_count": 1}))
