import mmap

import numpy as np

from chairlift.runners.openvino.huge_pages import (
    HUGE_PAGE,
    PIECE,
    Mapping,
    anonymous_mappings,
    collapse_resident_memory,
    pieces,
)
from chairlift.runners.openvino.memory import MIB


def entry(start: int, size: int, *, rights: str = "rw-p", name: str = "", resident: int, huge: int = 0) -> str:
    """A mapping as /proc/self/smaps tells of it."""
    return (
        f"{start:08x}-{start + size:08x} {rights} 00000000 00:00 0 {name}\n"
        f"Size: {size // 1024} kB\nRss: {resident // 1024} kB\nAnonHugePages: {huge // 1024} kB\nVmFlags: rd wr mr\n"
    )


def test_only_private_writable_memory_without_a_file_is_read() -> None:
    """Heap and anonymous maps; no code, no file, no shared memory."""
    smaps = (
        entry(0x400000, MIB, name="[heap]", resident=MIB, huge=4096)
        + entry(0x800000, MIB, rights="r-xp", resident=MIB)
        + entry(0xA00000, MIB, name="/models/model.gguf", resident=MIB)
        + entry(0xC00000, MIB, rights="rw-s", resident=MIB)
        + entry(0xE00000, MIB, resident=0)
    )

    assert list(anonymous_mappings(smaps)) == [
        Mapping(0x400000, 0x500000, MIB, 4096),
        Mapping(0xE00000, 0xF00000, 0, 0),
    ]


def test_a_mapping_is_cut_into_whole_huge_pages() -> None:
    """From the first boundary in it to the last, in pieces of bounded size."""
    start, size = 10 * HUGE_PAGE + 4096, PIECE + 5 * HUGE_PAGE

    cut = list(pieces(entry(start, size, resident=size), smallest=0))

    assert cut[0] == (11 * HUGE_PAGE, 11 * HUGE_PAGE + PIECE)
    assert cut[-1][1] == start + size - 4096
    assert [end for _, end in cut[:-1]] == [begin for begin, _ in cut[1:]]


def test_what_nobody_uses_and_what_is_moved_already_stay() -> None:
    """A stack with one page in use, a small mapping, one in huge pages."""
    size = 8 * HUGE_PAGE
    smaps = (
        entry(0, size, resident=4096)
        + entry(size, HUGE_PAGE, resident=HUGE_PAGE)
        + entry(2 * size, size, resident=size, huge=size)
    )

    assert list(pieces(smaps, smallest=2 * HUGE_PAGE)) == []


def test_memory_keeps_its_contents() -> None:
    """Moved or not, every byte is as it was; without time nothing is moved."""
    memory = np.frombuffer(mmap.mmap(-1, 16 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint32)
    memory[:] = np.arange(len(memory))

    assert collapse_resident_memory(seconds=-1.0) == 0
    assert collapse_resident_memory(seconds=10.0) % HUGE_PAGE == 0
    assert np.array_equal(memory, np.arange(len(memory)))
