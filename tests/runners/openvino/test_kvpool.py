from collections.abc import Callable

import numpy as np
import pytest

from chairlift.core.errors import OutOfDeviceMemory
from chairlift.runners.openvino import kvpool
from chairlift.runners.openvino.kvpool import RESERVE, KVPool
from chairlift.runners.openvino.memory import MIB, resident_bytes


def falling(*amounts: int) -> Callable[[], int]:
    """Available memory that is another amount at each look."""
    looks = iter(amounts)
    return lambda: next(looks)


def test_every_layer_has_a_key_and_a_value_cache_of_its_own() -> None:
    """Zeros of the shape asked for; writing to one changes no other."""
    pool = KVPool((3, 2, 32, 8), 2, np.float16)

    assert list(pool.tensors) == ["key_cache.0", "value_cache.0", "key_cache.1", "value_cache.1"]
    pool.tensors["value_cache.0"].data[...] = 1
    sums = {name: float(tensor.data.astype(np.float64).sum()) for name, tensor in pool.tensors.items()}
    assert sums == {"key_cache.0": 0, "value_cache.0": 3 * 2 * 32 * 8, "key_cache.1": 0, "value_cache.1": 0}
    assert {tuple(tensor.shape) for tensor in pool.tensors.values()} == {(3, 2, 32, 8)}


def test_the_pages_are_there_from_the_start() -> None:
    """A pool of 64 MiB grows the process by as much when it is made, not when it is used."""
    before = resident_bytes()

    pool = KVPool((256, 4, 32, 512), 1, np.float16)

    assert resident_bytes() - before > 60 * MIB
    assert sum(tensor.byte_size for tensor in pool.tensors.values()) == 64 * MIB


def test_a_pool_that_does_not_fit_is_refused_with_words() -> None:
    """What it needs, what there is, and the flags to lower."""
    with pytest.raises(OutOfDeviceMemory, match=r"pool of 64 MiB does not fit: 100 MiB are .*Lower --gpu"):
        KVPool((256, 4, 32, 512), 1, np.float16, falling(100 * MIB))


def test_a_pool_that_just_fits_is_taken() -> None:
    """The reserve is what has to stay free, to the byte."""
    size = 64 * MIB

    KVPool((256, 4, 32, 512), 1, np.float16, falling(size + RESERVE, size + RESERVE))

    with pytest.raises(OutOfDeviceMemory):
        KVPool((256, 4, 32, 512), 1, np.float16, falling(size + RESERVE - 1))


def test_memory_that_runs_short_meanwhile_stops_the_touching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else takes the memory after the first chunk: an error with how far it came, not a killed process."""
    monkeypatch.setattr(kvpool, "CHUNK", 16 * MIB)

    with pytest.raises(OutOfDeviceMemory, match=r"the KV pool of 64 MiB .*: 16 MiB are there, 70 MiB are"):
        KVPool((256, 4, 32, 512), 1, np.float16, falling(1 << 40, 1 << 40, 70 * MIB))


def test_a_size_that_no_system_gives_is_refused_with_words() -> None:
    """The system's own refusal becomes the same kind of error."""
    with pytest.raises(OutOfDeviceMemory, match=r"the system refuses .* for the KV pool"):
        KVPool((1 << 40, 4, 32, 512), 1, np.float16, falling(1 << 62))
