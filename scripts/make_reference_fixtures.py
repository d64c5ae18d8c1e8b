"""Make the reference fixtures of the OpenVINO runner: tiny random models and what transformers computes with them.

They are kept in the repository; this script is how they came about, and how to make them again after a change here:

    python -m venv /tmp/reference && /tmp/reference/bin/pip install torch transformers gguf
    /tmp/reference/bin/python scripts/make_reference_fixtures.py tests/fixtures/models [--demo FILE.gguf]

Without --demo the demo model's fixture is left alone (it takes minutes, the rest seconds). The environment is one of
its own, since the project itself depends neither on torch nor on transformers.
"""
# mypy: disable-error-code="import-not-found, import-untyped, no-any-unimported, no-untyped-call, misc"

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from numpy.typing import NDArray

PROMPT_TOKENS = 70
"""Past two KV blocks of 32."""

POSITIONS = (0, 5, 31, 32, 64, 69)
"""Where logits are kept: around the edges of KV blocks."""

INITIAL_STANDARD_DEVIATION = 0.25
"""Large enough for attention to prefer some positions, so that a wrong rotation or mask shows."""

DEMO_TOKENS = 64
"""Greedy tokens kept for each of the demo model's prompts."""


@dataclass(frozen=True, kw_only=True)
class Tiny:
    """A random model: what it is and how it is stored."""

    name: str
    config: transformers.PretrainedConfig
    dtype: str = "float32"
    shards: bool = False
    gguf_types: tuple[str, ...] = ()
    """As GGUF files of these types."""
    huggingface: bool = True
    """As a Hugging Face directory."""
    seed: int = field(default=0)


def tiny_models() -> list[Tiny]:
    """One for each thing that can differ: family, heads, head size, biases, tied embeddings, rope scaling, storage."""
    sizes: dict[str, Any] = {
        "vocab_size": 128,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "max_position_embeddings": 256,
        "initializer_range": INITIAL_STANDARD_DEVIATION,
        "rms_norm_eps": 1e-5,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    llama, qwen2, mistral = transformers.LlamaConfig, transformers.Qwen2Config, transformers.MistralConfig
    llama3 = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    linear = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    return [
        Tiny(name="llama-mha", config=llama(**sizes, num_attention_heads=2, num_key_value_heads=2, head_dim=16)),
        Tiny(
            name="llama-tied",
            config=llama(**sizes, **heads, head_dim=32, tie_word_embeddings=True),
            dtype="bfloat16",
            seed=1,
        ),
        Tiny(
            name="llama-rope3",
            config=llama(**sizes, **heads, head_dim=16, rope_parameters=llama3),
            dtype="float16",
            shards=True,
            gguf_types=("Q8_0",),
            seed=2,
        ),
        Tiny(
            name="llama-linear",
            config=llama(**sizes, **heads, head_dim=16, rope_parameters=linear),
            dtype="float16",
            gguf_types=("F16",),
            seed=3,
        ),
        Tiny(
            name="llama-gqa",
            config=llama(**sizes, num_attention_heads=4, num_key_value_heads=2),
            gguf_types=("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"),
            huggingface=False,
            seed=4,
        ),
        Tiny(
            name="mistral",
            config=mistral(**sizes, **heads, head_dim=16, sliding_window=128),
            dtype="bfloat16",
            seed=5,
        ),
        Tiny(
            name="qwen2",
            config=qwen2(**sizes, **heads, head_dim=64, tie_word_embeddings=True),
            dtype="float16",
            gguf_types=("Q4_1",),
            seed=6,
        ),
    ]


def build(tiny: Tiny) -> torch.nn.Module:
    """The model with weights, norms and biases drawn at random, in its storage type."""
    torch.manual_seed(tiny.seed)
    model = transformers.AutoModelForCausalLM.from_config(tiny.config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.normal_(1.0, 0.2)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.5)
            # Not model.to(): that would round the rotary frequencies too, which every loader keeps in f32.
            parameter.data = parameter.data.to(getattr(torch, tiny.dtype))
    return model.eval()


def reference_logits(model: torch.nn.Module, prompt: NDArray[np.int64]) -> NDArray[np.float32]:
    """Logits at POSITIONS, computed in f32."""
    with torch.no_grad():
        logits = model.float()(torch.from_numpy(prompt)[None]).logits[0]
    kept: NDArray[np.float32] = logits[list(POSITIONS)].numpy()
    return kept


def save_huggingface(model: torch.nn.Module, folder: Path, *, shards: bool) -> None:
    """config.json and safetensors, in several files when `shards`."""
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size="40KB" if shards else "5GB")
    (folder / "generation_config.json").unlink(missing_ok=True)


def pairs_from_halves(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """llama.cpp's order of query and key rows: the pairs that rotate together side by side."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)


def gguf_name(name: str) -> str:
    """Rename a parameter from transformers' convention to GGUF's."""
    for old, new in (
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers", "blk"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ):
        name = name.replace(old, new)
    return name


def save_gguf(model: torch.nn.Module, path: Path, kind: str) -> None:
    """Write a GGUF file with matrices of one type, and round the model's own matrices to what the file holds."""
    config = model.config
    arch = config.model_type
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(path.stem)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "llama3":
        unscaled = rope["rope_theta"] ** -(torch.arange(0, head_dim, 2) / head_dim)
        writer.add_tensor("rope_freqs.weight", (unscaled / model.model.rotary_emb.inv_freq).numpy().astype(np.float32))
    for name, parameter in model.named_parameters():
        rows = parameter.detach().float().numpy()
        if rows.ndim == 1:
            stored, wanted = rows, gguf.GGMLQuantizationType.F32
        else:
            wanted = gguf.GGMLQuantizationType[kind]
            stored = rows
        if arch == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            stored = pairs_from_halves(stored, heads)
        packed = gguf.quants.quantize(stored, wanted)
        writer.add_tensor(gguf_name(name), packed, raw_dtype=wanted)
        with torch.no_grad():
            # Rows move whole, so rounding them in either order gives the same numbers.
            parameter.copy_(torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(rows, wanted), wanted)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_tiny(folder: Path) -> None:
    """All tiny models and `reference.npz`: the prompt, the positions, and logits by model."""
    folder.mkdir(parents=True, exist_ok=True)
    prompt = np.random.default_rng(0).integers(3, 128, PROMPT_TOKENS)
    arrays: dict[str, NDArray[Any]] = {"prompt": prompt, "positions": np.array(POSITIONS)}
    for tiny in tiny_models():
        model = build(tiny)
        if tiny.huggingface:
            save_huggingface(model, folder / tiny.name, shards=tiny.shards)
            arrays[tiny.name] = reference_logits(model, prompt)
        for kind in tiny.gguf_types:
            rounded = build(tiny).float()
            file = folder / f"{tiny.name}.{kind}.gguf"
            save_gguf(rounded, file, kind)
            arrays[file.name] = reference_logits(rounded, prompt)
    np.savez_compressed(folder / "reference.npz", allow_pickle=False, **arrays)
    for name, logits in arrays.items():
        if logits.ndim == 2:
            top = np.sort(logits, axis=1)
            print(
                f"{name:24} logits up to {np.abs(logits).max():6.2f}, smallest gap "
                f"{(top[:, -1] - top[:, -2]).min():.4f}"
            )


def demo_prompts(encode: Callable[[str], list[int]], chat: Callable[[str], list[int]]) -> list[list[int]]:
    """Twenty prompts of 1 to 311 tokens: raw text and chat."""
    story = (
        "The valley had one road, one river and one cable car, and on winter mornings all three were silent. Then "
        "the engineer "
        "came up the stairs with her lamp, threw the main switch, and the long rope began to move. "
    )
    code = "def allocate(blocks, wanted):\n    taken = []\n    for block in blocks:\n        if len(taken) == wanted:\n"
    raw = [
        "Hello",
        "The capital of France is",
        "Once upon a time, in a small village by the sea,",
        "1, 1, 2, 3, 5, 8, 13,",
        "import numpy as np\n\ndef softmax(x):",
        "In physics, the second law of thermodynamics states that",
        "Zürich, Genève und Lugano: drei Städte, drei Sprachen. ",
        code,
        story,
        story * 3 + "The first passenger was",
        story * 4 + "Summary:",
        code * 9,
    ]
    asked = [
        "Who are you?",
        "What is continuous batching?",
        "Write a haiku about snow.",
        "List three uses of a paged cache, one line each.",
        "Translate to French: The lift leaves when it is full.",
        "What is 17 times 3?",
        "Summarise this in one sentence: " + story * 2,
        "Continue this story: " + story * 6,
    ]
    return [encode(text) for text in raw] + [chat(text) for text in asked]


def greedy(model: torch.nn.Module, prompt: list[int], count: int) -> dict[str, list[Any]]:
    """Greedy tokens, the runner-up at each position, and by how much it lost."""
    tokens, runners_up, gaps = [], [], []
    ids, cache = torch.tensor([prompt]), None
    with torch.no_grad():
        for _ in range(count):
            out = model(ids, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            top = out.logits[0, -1].topk(2)
            first, second = top.indices.tolist()
            tokens.append(first)
            runners_up.append(second)
            gaps.append(round(float(top.values[0] - top.values[1]), 4))
            ids = torch.tensor([[first]])
    return {"prompt": prompt, "tokens": tokens, "runners_up": runners_up, "gaps": gaps}


def make_demo(file: Path, target: Path) -> None:
    """Greedy continuations by transformers in f32 on the dequantised weights; end tokens do not stop them."""
    torch.set_num_threads(2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    ).eval()

    def chat(text: str) -> list[int]:
        templated = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
        )
        ids: list[int] = tokenizer.encode(templated, add_special_tokens=False)
        return ids

    prompts = demo_prompts(lambda text: tokenizer.encode(text, add_special_tokens=False), chat)
    write_demo(target, file.name, (greedy(model, prompt, DEMO_TOKENS) for prompt in prompts))


def write_demo(target: Path, name: str, cases: Iterable[dict[str, list[Any]]]) -> None:
    """One case to a line, so that a change shows which."""
    made_with = {"torch": torch.__version__, "transformers": transformers.__version__}
    lines = []
    for case in cases:
        lines.append("  " + json.dumps(case))
        print(f"{len(case['prompt']):4} prompt tokens, smallest gap {min(case['gaps']):.4f}", flush=True)
    head = f'"model": {json.dumps(name)}, "made_with": {json.dumps(made_with)}'
    target.write_text("{" + head + ', "cases": [\n' + ",\n".join(lines) + "\n]}\n", "utf-8")


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--demo", type=Path, help="the demo model's GGUF file")
    arguments = parser.parse_args()
    make_tiny(arguments.folder)
    if arguments.demo:
        make_demo(arguments.demo, arguments.folder / "demo_greedy.json")


if __name__ == "__main__":
    main()
