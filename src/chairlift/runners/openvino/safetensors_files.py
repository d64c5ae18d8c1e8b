"""The safetensors files of a directory: tensors as views of copy-on-write maps.

The library checks each file's header against its length; what it lacks is a view of bf16 data and of any data without a
copy, so the header's offsets are read again here. Layout: 8 bytes little-endian length, that much JSON, the data.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from chairlift.core.errors import CorruptModel, UnsupportedModel
from chairlift.runners.openvino.tensors import Encoding, StoredTensor

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

_ENCODINGS = {"F32": Encoding.F32, "F16": Encoding.F16, "BF16": Encoding.BF16}


@dataclass(frozen=True, slots=True, eq=False)
class _Shard:
    path: Path
    map: mmap.mmap
    data: NDArray[np.uint8]
    """What follows the header."""
    header: dict[str, dict[str, Any]]


class SafetensorsDirectory:
    """All tensors of a directory, in one file or in the shards that an index lists.

    Attributes:
        names: of all tensors.
    """

    def __init__(self, directory: Path) -> None:
        """Raises CorruptModel when files are missing or damaged, UnsupportedModel when there are no safetensors."""
        self._directory = directory
        self._shards = [_open(path) for path in _files(directory)]
        self._shard_of = {name: shard for shard in self._shards for name in shard.header}
        self.names = frozenset(self._shard_of)

    def tensor(self, name: str) -> StoredTensor:
        """A view of one tensor; nothing is read yet.

        Raises:
            CorruptModel: it is absent.
            UnsupportedModel: its type is none that can be run as stored.
        """
        shard = self._shard_of.get(name)
        if shard is None:
            raise CorruptModel(
                f"{self._directory} has no tensor {name}, which its config.json needs: a file is missing."
            )
        entry = shard.header[name]
        encoding = _ENCODINGS.get(entry["dtype"])
        if encoding is None:
            raise UnsupportedModel(
                f"tensor {name} in {shard.path.name} is stored as {entry['dtype']}; supported are "
                f"{', '.join(_ENCODINGS)} in "
                f"safetensors. Take the model's original weights, or a GGUF file of it for quantised ones."
            )
        start, end = entry["data_offsets"]
        shape = tuple(entry["shape"])
        if end - start != prod(shape) * encoding.block_bytes or not shape:
            raise CorruptModel(
                f"tensor {name} in {shard.path} takes {end - start} bytes, which its shape {shape} does not."
            )
        # The format aligns data to nothing: a view of wider elements needs a copy where it happens not to be aligned.
        raw = shard.data[start:end]
        return StoredTensor.view(
            name, encoding, shape, raw if raw.ctypes.data % encoding.block_bytes == 0 else raw.copy()
        )

    def release_pages(self) -> None:
        """Give the pages read so far back to the system; a later look reads them anew."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for shard in self._shards:
                shard.map.madvise(mmap.MADV_DONTNEED)


def _files(directory: Path) -> Iterable[Path]:
    if (index := directory / INDEX).is_file():
        try:
            names = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptModel(f"{index} is no index of safetensors shards ({error}). Fetch it again.") from error
        if strange := [name for name in names if not isinstance(name, str) or Path(name).name != name]:
            raise CorruptModel(f"{index} names {strange[0]!r}, which is no file of its own folder. Fetch it again.")
        if missing := sorted(name for name in names if not (directory / name).is_file()):
            raise CorruptModel(f"{directory} lacks {', '.join(missing)}, which {INDEX} lists. Fetch what is missing.")
        return [directory / name for name in sorted(names)]
    if (single := directory / SINGLE).is_file():
        return [single]
    if others := sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in directory.glob(pattern)):
        raise UnsupportedModel(
            f"{directory} holds pickled weights ({others[0]}), which can run code when they are opened; this "
            f"build reads {SINGLE}. "
            f"Save it again with transformers: `model.save_pretrained(FOLDER, safe_serialization=True)`."
        )
    raise CorruptModel(f"{directory} has neither {SINGLE} nor {INDEX}: the weights are missing. Fetch them.")


def _open(path: Path) -> _Shard:
    try:
        with safe_open(path, framework="np"):
            pass
    except (SafetensorError, OSError) as error:
        raise CorruptModel(f"{path} is truncated or damaged ({error}). Fetch it again.") from error
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    (length,) = struct.unpack("<Q", mapped[:8])
    header = json.loads(mapped[8 : 8 + length])
    header.pop("__metadata__", None)
    return _Shard(path, mapped, np.frombuffer(mapped, np.uint8)[8 + length :], header)
