"""Opens a model on disk, whichever supported format it has."""

from __future__ import annotations

from pathlib import Path

from chairlift.runners.openvino.checkpoint import Checkpoint
from chairlift.runners.openvino.from_gguf import read_gguf
from chairlift.runners.openvino.from_huggingface import read_directory


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file or a Hugging Face directory.

    Raises:
        FileNotFoundError: nothing is there.
        UnsupportedModel: it was read, but cannot be run here; the message names what and the way out.
        CorruptModel: it is truncated, incomplete or contradicts itself.
    """
    if path.is_dir():
        return read_directory(path)
    if not path.exists():
        raise FileNotFoundError(
            f"there is no model at {path}: give a GGUF file, or a folder with config.json and safetensors."
        )
    return read_gguf(path)
