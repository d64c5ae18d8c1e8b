"""Counter-based random numbers: Philox4x32-10, for many (key, counter) pairs at once.

The number for a (key, counter) pair is a function of that pair alone, so that what a request draws for its n-th token
does not depend on who else runs, in which row it sits, or how often a step was repeated.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; checked in the tests against
the known answers that its authors publish with Random123.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_ROUNDS: Final = 10
_MULTIPLIER_0: Final = np.uint64(0xD2511F53)
_MULTIPLIER_1: Final = np.uint64(0xCD9E8D57)
_WEYL_0: Final = np.uint64(0x9E3779B9)
_WEYL_1: Final = np.uint64(0xBB67AE85)
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)

Words = NDArray[np.uint64]
"""32-bit words, each in 64 bits so that a product fits."""


def philox4x32(counter: tuple[Words, Words, Words, Words], key: tuple[Words, Words]) -> tuple[Words, ...]:
    """The block function on arrays: four words of output for each counter of four words and key of two."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product_0 = c0 * _MULTIPLIER_0
        product_1 = c2 * _MULTIPLIER_1
        c0, c1, c2, c3 = (
            (product_1 >> _HALF) ^ c1 ^ k0,
            product_1 & _LOW,
            (product_0 >> _HALF) ^ c3 ^ k1,
            product_0 & _LOW,
        )
        k0 = (k0 + _WEYL_0) & _LOW
        k1 = (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


def uniforms(keys: NDArray[np.uint64], positions: NDArray[np.uint64]) -> NDArray[np.float64]:
    """One number in [0, 1) with 53 random bits for each pair of 64-bit key and position. Shapes: [S], [S] -> [S]."""
    zeros = np.zeros_like(positions)
    words = philox4x32((positions & _LOW, positions >> _HALF, zeros, zeros), (keys & _LOW, keys >> _HALF))
    bits = (words[0] << _HALF | words[1]) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53
