import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.engine.philox import philox4x32, uniforms

# From Random123's file of known answers (kat_vectors, philox4x32 of 10 rounds): counter, key, answer.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]

words = st.integers(0, 2**64 - 1)


def column(value: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """One value as an array."""
    return np.array([value], dtype=np.uint64)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_the_authors_known_answers(counter: tuple[int, ...], key: tuple[int, ...], answer: tuple[int, ...]) -> None:
    """The block function is Philox4x32-10, bit for bit."""
    c0, c1, c2, c3 = map(column, counter)
    k0, k1 = map(column, key)

    assert tuple(int(word[0]) for word in philox4x32((c0, c1, c2, c3), (k0, k1))) == answer


@given(st.lists(st.tuples(words, words), min_size=1, max_size=8))
def test_a_number_depends_on_its_own_pair_alone(pairs: list[tuple[int, int]]) -> None:
    """Whatever stands beside it in the arrays, a (key, position) pair gets the same number in [0, 1)."""
    keys, positions = (np.array(column, dtype=np.uint64) for column in zip(*pairs, strict=True))
    together = uniforms(keys, positions)

    alone = [uniforms(keys[i : i + 1], positions[i : i + 1])[0] for i in range(len(pairs))]

    assert together.tolist() == alone
    assert ((together >= 0) & (together < 1)).all()


def test_numbers_are_spread_evenly() -> None:
    """100,000 successive positions of one key fill 100 bins evenly (chi-square below its 99.9% point, 148.2)."""
    numbers = uniforms(np.full(100_000, 42, dtype=np.uint64), np.arange(100_000, dtype=np.uint64))

    counts = np.bincount((numbers * 100).astype(int), minlength=100)

    assert ((counts - 1000) ** 2 / 1000).sum() < 148.2
