"""Seeded randomness that stays the same: in every order of asking, under every version of Python and numpy.

Everything is cut from SHAKE-128 (FIPS 202) of a text that names seed, stream and number. So a load's lengths don't
change when its arrivals do, and the prompt of request 900,000 can be had without the ones before it.

Tokens are integers all the way. Lengths and gaps pass through the C library's log and exp, whose last bit may differ
from platform to platform: then one rounding in some 10⁸ goes the other way, and the load's fingerprint says so.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator
from statistics import NormalDist
from typing import Final

GENERATION: Final = "chairlift-load-1"
"""Changes whenever the same seed would no longer give the same load."""

_BLOCK: Final = 256
_UNPACK: Final = struct.Struct(f"<{_BLOCK}Q").unpack
_TO_UNIT: Final = 2.0**-53
_NORMAL: Final = NormalDist()


def stream_bytes(seed: int, stream: str, number: int, size: int) -> bytes:
    """The first `size` bytes of a stream; a longer cut begins with the shorter one."""
    return hashlib.shake_128(f"{GENERATION}/{seed}/{stream}/{number}".encode()).digest(size)


class Draws:
    """Uniform numbers by stream and index."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._blocks: dict[str, tuple[int, tuple[float, ...]]] = {}  # the last block of each stream, to save work

    def uniform(self, stream: str, index: int) -> float:
        """A number in [0, 1), always the same for the same stream and index."""
        block, offset = divmod(index, _BLOCK)
        known = self._blocks.get(stream)
        if known is None or known[0] != block:
            words = _UNPACK(stream_bytes(self.seed, f"uniform/{stream}", block, 8 * _BLOCK))
            known = self._blocks[stream] = (block, tuple((word >> 11) * _TO_UNIT for word in words))
        return known[1][offset]

    def uniforms(self, stream: str) -> Iterator[float]:
        """The stream's numbers in order, without end."""
        index = 0
        while True:
            yield self.uniform(stream, index)
            index += 1


def exponential(uniform: float) -> float:
    """Exponential with mean 1, by inversion."""
    return -math.log1p(-uniform)


def normal(uniform: float) -> float:
    """Standard normal, by inversion."""
    return _NORMAL.inv_cdf(max(uniform, _TO_UNIT))


def gamma(shape: float, uniforms: Iterator[float]) -> float:
    """Gamma with mean 1, by Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.

    Args:
        shape: above 0; the coefficient of variation is shape ** -0.5.
        uniforms: as many are taken as the rejections need.
    """
    boost = 1.0
    d = shape - 1 / 3
    if shape < 1:  # their section 6: a gamma of shape + 1 times a power of a uniform
        boost = (1 - next(uniforms)) ** (1 / shape)
        d += 1
    c = 1 / math.sqrt(9 * d)
    while True:
        x = normal(next(uniforms))
        v = (1 + c * x) ** 3
        if v > 0 and math.log1p(-next(uniforms)) < x * x / 2 + d - d * v + d * math.log(v):
            return boost * d * v / shape
