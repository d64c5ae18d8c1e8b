"""GGUF files (versions 2 and 3): metadata, and tensors as views of a copy-on-write map of the file.

The layout is that of ggml's docs/gguf.md. Every count and length is checked against what is left of the file before it
is used, so that a damaged file ends in an error and never in a huge allocation.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from chairlift.core.errors import CorruptModel, UnsupportedModel
from chairlift.runners.openvino.tensors import SUPPORTED_ENCODINGS, Encoding, StoredTensor

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
MAX_ARRAY_DEPTH = 2
MAX_TENSORS = 1 << 17
MAX_METADATA_KEYS = 1 << 17

_BOOL, _STRING, _ARRAY = 7, 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "?", 10: "Q", 11: "q", 12: "d"}

_ENCODINGS = {
    0: Encoding.F32,
    1: Encoding.F16,
    2: Encoding.Q4_0,
    3: Encoding.Q4_1,
    8: Encoding.Q8_0,
    30: Encoding.BF16,
}
# Names of the other types in ggml.h, for messages.
_OTHER_TYPES = {
    6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K",
    16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies. The type is kept as a number: only what is loaded has to be supported."""

    name: str
    shape: tuple[int, ...]
    """Rows first (the file has them reversed)."""
    ggml_type: int
    offset: int
    """Bytes from the start of the data section."""


class GgufFile:
    """An open GGUF file. Keep it as long as its tensors are used.

    Attributes:
        path: the file.
        metadata: every key and value; arrays are lists.
        tensors: by name.
    """

    def __init__(self, path: Path) -> None:
        """Raises CorruptModel when the file is no GGUF file or is damaged; OSError when it cannot be read."""
        self.path = path
        with path.open("rb") as file:
            size = path.stat().st_size
            if size < len(MAGIC):
                raise CorruptModel(f"{path} has {size} bytes: it is no GGUF file. Fetch it again.")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        cursor = _Cursor(self._map, path)
        tensor_count, key_count = _header(cursor)
        self.metadata: Mapping[str, Any] = _metadata(cursor, key_count)
        self.tensors: Mapping[str, TensorInfo] = _tensor_infos(cursor, tensor_count)
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            cursor.corrupt(f"general.alignment is {alignment!r}, not a power of two")
        self._data_start = -(-cursor.position // alignment) * alignment
        self._bytes = np.frombuffer(self._map, np.uint8)

    def tensor(self, name: str) -> StoredTensor:
        """A view of one tensor; nothing is read yet.

        Raises:
            UnsupportedModel: its type is none that can be run as stored.
            CorruptModel: it is absent, or does not lie inside the file.
        """
        info = self.tensors.get(name)
        if info is None:
            raise CorruptModel(
                f"{self.path} has no tensor {name}, which its architecture needs: the file is incomplete."
            )
        encoding = _ENCODINGS.get(info.ggml_type)
        if encoding is None:
            label = _OTHER_TYPES.get(info.ggml_type, f"type {info.ggml_type}")
            raise UnsupportedModel(
                f"tensor {name} in {self.path.name} is stored as {label}; supported are {SUPPORTED_ENCODINGS}. "
                f"Take a file of another type, or make one from the original weights with llama.cpp: "
                f"`llama-quantize --pure SOURCE.gguf OUT.gguf Q8_0` (or Q4_0, Q4_1)."
            )
        if info.shape[-1] % encoding.block_weights:
            raise CorruptModel(
                f"tensor {name} in {self.path}: rows of {info.shape[-1]} weights are not whole {encoding.label} blocks "
                f"of {encoding.block_weights}. The file is damaged: fetch it again."
            )
        length = prod(info.shape[:-1]) * encoding.row_bytes(info.shape[-1])
        start = self._data_start + info.offset
        if start + length > len(self._bytes):
            raise CorruptModel(
                f"{self.path} is truncated: tensor {name} ends at byte {start + length:,}, the file at "
                f"{len(self._bytes):,}. "
                f"Fetch it again."
            )
        return StoredTensor.view(name, encoding, info.shape, self._bytes[start : start + length])

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors, of whatever type: the data section, alignment between tensors included.

        Raises:
            CorruptModel: the file ends before one of them, as far as its type tells how long it is.
        """
        for name, info in self.tensors.items():
            encoding = _ENCODINGS.get(info.ggml_type)
            known = encoding is not None and info.shape[-1] % encoding.block_weights == 0
            length = prod(info.shape[:-1]) * encoding.row_bytes(info.shape[-1]) if encoding and known else 1
            if (end := self._data_start + info.offset + length) > len(self._bytes):
                raise CorruptModel(
                    f"{self.path} is truncated: tensor {name} ends at byte {end:,} or later, the file at "
                    f"{len(self._bytes):,}. Fetch it again."
                )
        return max(0, len(self._map) - self._data_start)

    def release_pages(self) -> None:
        """Give the pages read so far back to the system; a later look reads them anew."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


class _Cursor:
    """Reads little-endian values one after the other and never past the end."""

    def __init__(self, buffer: mmap.mmap, path: Path) -> None:
        self._buffer = buffer
        self._end = len(buffer)
        self._path = path
        self.position = 0

    def corrupt(self, what: str) -> NoReturn:
        raise CorruptModel(f"{self._path} is damaged: {what} (before byte {self.position:,}). Fetch it again.")

    def take(self, length: int, what: str) -> bytes:
        if length > self.left:
            self._short(length, what)
        start = self.position
        self.position += length
        return self._buffer[start : self.position]

    def _short(self, length: int, what: str) -> NoReturn:
        raise CorruptModel(
            f"{self._path} is truncated or damaged: {what} at byte {self.position:,} takes {length:,} bytes, "
            f"{self.left:,} are left. Fetch it again."
        )

    def number(self, code: str, what: str) -> Any:
        layout = struct.Struct("<" + code)
        return layout.unpack(self.take(layout.size, what))[0]

    def count(self, limit: int, what: str) -> int:
        value: int = self.number("Q", what)
        if value > limit:
            self.corrupt(f"{what} is {value:,}, more than {limit:,}")
        return value

    def text(self, what: str) -> str:
        return self.take(self.number("Q", what), what).decode("utf-8", "surrogateescape")

    def texts(self, count: int, what: str) -> list[str]:
        """Like text(), many times; a vocabulary has 100,000 of them, so this loop is flat."""
        buffer, end, position = self._buffer, self._end, self.position
        unpack = struct.Struct("<Q").unpack_from
        found = []
        for _ in range(count):
            self.position = position
            start = position + 8
            position = start + unpack(buffer, position)[0] if start <= end else start
            if position > end:
                self._short(position - self.position, what)
            found.append(buffer[start:position].decode("utf-8", "surrogateescape"))
        self.position = position
        return found

    @property
    def left(self) -> int:
        return self._end - self.position


def _header(cursor: _Cursor) -> tuple[int, int]:
    """Tensor and metadata counts."""
    magic = cursor.take(4, "the magic number")
    if magic != MAGIC:
        cursor.corrupt(f"it begins with {magic!r} instead of {MAGIC!r}, so it is no GGUF file")
    version = cursor.number("I", "the version")
    if version not in VERSIONS:
        hint = " (it may be written for a big-endian machine)" if version > 1 << 16 else ""
        cursor.corrupt(f"its GGUF version is {version}{hint}; versions {VERSIONS[0]} and {VERSIONS[1]} are read")
    return cursor.count(MAX_TENSORS, "the number of tensors"), cursor.count(MAX_METADATA_KEYS, "the number of keys")


def _metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.text("a metadata key")
        metadata[key] = _value(cursor, cursor.number("I", f"the type of {key}"), key, 0)
    return metadata


def _value(cursor: _Cursor, kind: int, key: str, depth: int) -> Any:
    if kind == _STRING:
        return cursor.text(key)
    if kind in _NUMBERS:
        return cursor.number(_NUMBERS[kind], key)
    if kind != _ARRAY:
        cursor.corrupt(f"{key} has the unknown type {kind}")
    if depth == MAX_ARRAY_DEPTH:
        cursor.corrupt(f"{key} nests arrays deeper than {MAX_ARRAY_DEPTH}")
    element: int = cursor.number("I", key)
    read: Callable[[int], list[Any]]
    if element in _NUMBERS:
        smallest = struct.calcsize("<" + _NUMBERS[element])
        read = lambda count: list(  # noqa: E731 - the three ways to read an array, side by side
            struct.unpack(f"<{count}{_NUMBERS[element]}", cursor.take(count * smallest, key))
        )
    elif element == _STRING:
        smallest = 8
        read = lambda count: cursor.texts(count, key)  # noqa: E731
    else:
        smallest = 12
        read = lambda count: [_value(cursor, element, key, depth + 1) for _ in range(count)]  # noqa: E731
    return read(cursor.count(max(0, cursor.left - 8) // smallest, f"the length of {key}"))


def _tensor_infos(cursor: _Cursor, count: int) -> dict[str, TensorInfo]:
    infos: dict[str, TensorInfo] = {}
    for _ in range(count):
        name = cursor.text("a tensor's name")
        rank = cursor.number("I", f"the rank of {name}")
        if not 1 <= rank <= MAX_DIMENSIONS:
            cursor.corrupt(f"tensor {name} has {rank} dimensions")
        dimensions = struct.unpack(f"<{rank}Q", cursor.take(8 * rank, f"the shape of {name}"))
        if not all(0 < size < 1 << 40 for size in dimensions):
            cursor.corrupt(f"tensor {name} has the impossible shape {dimensions}")
        if name in infos:
            cursor.corrupt(f"tensor {name} occurs twice")
        kind, offset = cursor.number("I", f"the type of {name}"), cursor.number("Q", f"the offset of {name}")
        infos[name] = TensorInfo(name, dimensions[::-1], kind, offset)
    return infos
