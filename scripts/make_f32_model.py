"""Write the demo model as a Hugging Face directory in f32, for engines that do not read GGUF.

    python scripts/make_f32_model.py [FOLDER]

The weights are the GGUF file's own, dequantised: whoever reads the folder computes with the same numbers. Does nothing
when the folder is complete. Needs the model (`make model`) and 540 MB.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from chairlift import demo_model
from chairlift.runners.openvino.checkpoint import Checkpoint, Linear
from chairlift.runners.openvino.formats import open_checkpoint
from chairlift.text import from_gguf
from chairlift.text.tokenizer import Tokenizer

DEFAULT = Path(__file__).resolve().parents[1] / ".models" / "peers" / "hf-f32"


def tensors(checkpoint: Checkpoint) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Name and values of every tensor, as a model of the Llama family has them in safetensors."""
    yield "model.embed_tokens.weight", checkpoint.embedding.to_float32()
    yield "model.norm.weight", checkpoint.norm.to_float32()
    if checkpoint.head is not None:
        yield "lm_head.weight", checkpoint.head.to_float32()
    for index, layer in enumerate(checkpoint.layers):
        prefix = f"model.layers.{index}."
        yield prefix + "input_layernorm.weight", layer.attention_norm.to_float32()
        yield prefix + "post_attention_layernorm.weight", layer.feed_forward_norm.to_float32()
        matrices: dict[str, Linear] = {
            "self_attn.q_proj": layer.query,
            "self_attn.k_proj": layer.key,
            "self_attn.v_proj": layer.value,
            "self_attn.o_proj": layer.attention_output,
            "mlp.gate_proj": layer.gate,
            "mlp.up_proj": layer.up,
            "mlp.down_proj": layer.down,
        }
        for name, linear in matrices.items():
            yield f"{prefix}{name}.weight", linear.weight.to_float32()


def config(checkpoint: Checkpoint, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """config.json."""
    arch = checkpoint.architecture
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "bos_token_id": tokenizer.special.bos_id,
        "eos_token_id": tokenizer.special.eos_id,
        "hidden_act": "silu",
        "hidden_size": arch.hidden_size,
        "intermediate_size": arch.intermediate_size,
        "num_hidden_layers": arch.num_layers,
        "num_attention_heads": arch.num_heads,
        "num_key_value_heads": arch.num_kv_heads,
        "head_dim": arch.head_dim,
        "max_position_embeddings": arch.context_length,
        "rms_norm_eps": arch.norm_epsilon,
        "rope_theta": metadata["llama.rope.freq_base"],
        "rope_parameters": {"rope_type": "default", "rope_theta": metadata["llama.rope.freq_base"]},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": checkpoint.head is None,
        "vocab_size": checkpoint.vocab_size,
    }


def convert(source: Path, folder: Path) -> None:
    """Write the folder; config.json comes last, so that its presence tells that all is there."""
    checkpoint = open_checkpoint(source)
    metadata = checkpoint.tokenizer
    if isinstance(metadata, Path):
        raise TypeError(f"{source} is no GGUF file.")
    tokenizer = Tokenizer.from_gguf(metadata)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors(checkpoint)), folder / "model.safetensors", metadata={"format": "pt"})
    from_gguf.build(from_gguf.GgufVocabulary.read(metadata)).save(str(folder / "tokenizer.json"))
    named = {"tokenizer_class": "PreTrainedTokenizerFast", **tokenizer.strings}
    if isinstance(template := metadata.get("tokenizer.chat_template"), str):
        named["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(named, indent=2) + "\n", "utf-8")
    (folder / "config.json").write_text(json.dumps(config(checkpoint, metadata, tokenizer), indent=2) + "\n", "utf-8")


def main() -> int:
    """Convert unless done."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    if (folder / "config.json").is_file():
        return 0
    print(f"model: writing {folder} (540 MB)")
    try:
        convert(demo_model.locate(), folder)
    except OSError as error:  # no model, or no room
        print(f"model: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
