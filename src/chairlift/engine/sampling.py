"""From logits to tokens, for a whole step at once.

All-greedy steps cost one argmax. Every other row is worked on alone, because its 200 KB of logits then stay in the
processor's cache, and each works on few candidates: the largest values are found by the maxima of blocks, never by
sorting the vocabulary.

A random row takes one uniform number u, a function of its seed and of how many tokens it has generated, and picks the
token at which the cumulated probability, *in order of token id*, passes u. In that order a logit that differs in its
last bits (the same row in a batch of another size) moves a boundary by as little; in order of probability two close
tokens would change places, and with them which token u picks.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from chairlift.core.request import TokenId
from chairlift.engine.params import SamplingParams
from chairlift.engine.philox import uniforms
from chairlift.runners.base import Sampled

_BLOCK = 256
"""Tokens whose weights are added up at once."""
_GROUP = 32
"""Tokens of which only the largest is looked at first."""
_FEW = 512
"""Up to here sorting all costs less than looking for whom to sort."""

Logits = NDArray[np.float32]


class SequenceSampling:
    """What the sampler knows of one request."""

    __slots__ = ("counts", "generated", "key", "params", "plain", "stop_ids")

    def __init__(self, params: SamplingParams, stop_ids: frozenset[TokenId], key: int) -> None:
        self.params = params
        self.key = key
        self.generated = 0
        self.counts: Counter[TokenId] | None = Counter() if params.penalised else None
        self.stop_ids = np.array(sorted(stop_ids), dtype=np.int64)
        self.plain = params.greedy and not params.penalised and not params.min_tokens
        """Its token is always the argmax of the logits as they come."""


class BatchSampler:
    """Implements runners.base.Sampler over the requests that were added.

    Args:
        entropy: a new 64-bit key for each request without a seed.
    """

    def __init__(self, entropy: Callable[[], int] = lambda: secrets.randbits(64)) -> None:
        self._entropy = entropy
        self._sequences: dict[str, SequenceSampling] = {}

    def __len__(self) -> int:
        return len(self._sequences)

    def add(self, request_id: str, params: SamplingParams, stop_ids: frozenset[TokenId]) -> None:
        """A request whose rows may come; `stop_ids` are the tokens it must not sample before min_tokens."""
        key = self._entropy() if params.seed is None else params.seed % 2**64
        self._sequences[request_id] = SequenceSampling(params, stop_ids, key)

    def seeded(self, request_id: str) -> bool:
        """Whether it was promised the same answer whatever runs beside it: it draws, and has a seed."""
        sequence = self._sequences.get(request_id)
        return sequence is not None and sequence.params.seed is not None and not sequence.params.greedy

    def accept(self, request_id: str, token: TokenId) -> None:
        """The token sampled for the request counts: its step was not lost."""
        sequence = self._sequences[request_id]
        sequence.generated += 1
        if sequence.counts is not None:
            sequence.counts[token] += 1

    def remove(self, request_id: str) -> None:
        """The request has ended."""
        self._sequences.pop(request_id, None)

    def __call__(self, request_ids: Sequence[str], logits: Logits) -> Sampled:
        sequences = [self._sequences[request_id] for request_id in request_ids]
        tokens = logits.argmax(axis=1)
        # NaN and +inf win every argmax, and where all is -inf so is the winner: its value alone tells a bad row.
        best = logits[np.arange(len(tokens)), tokens]
        failures: dict[int, str] = {}
        if not np.isfinite(best).all():
            failures = {int(row): _not_finite(logits[row]) for row in np.flatnonzero(~np.isfinite(best))}
        special = [row for row, sequence in enumerate(sequences) if not sequence.plain and row not in failures]
        if special:
            chosen = [sequences[row] for row in special]
            numbers = uniforms(
                np.array([sequence.key for sequence in chosen], dtype=np.uint64),
                np.array([sequence.generated for sequence in chosen], dtype=np.uint64),
            )
            for row, sequence, number in zip(special, chosen, numbers, strict=True):
                token = choose(_adjusted(logits[row], sequence), sequence.params, float(number))
                if token is None:
                    failures[row] = "every token that may be sampled has a logit of -inf."
                else:
                    tokens[row] = token
        return Sampled(tokens.tolist(), failures)


def choose(logits: Logits, params: SamplingParams, number: float) -> TokenId | None:
    """The token that a uniform number in [0, 1) picks.

    Args:
        logits: [vocabulary]; no NaN, no +inf.
        params: temperature, top_k and top_p.
        number: the uniform number.

    Returns:
        The token id; None when every logit is -inf.
    """
    top = logits.max()
    if top == -np.inf:
        return None
    if params.greedy:
        return int(logits.argmax())
    # Temperature first, as vLLM and llama.cpp's default chain do for top_p; top_k does not depend on the order.
    if params.top_k > 0 and params.top_k < len(logits):
        ids = largest(logits, params.top_k)
        weights = np.exp((logits[ids] - top) * np.float32(1 / params.temperature))
    else:
        ids = None
        weights = np.exp((logits - top) * np.float32(1 / params.temperature))
    if params.top_p < 1:
        kept = nucleus(weights, params.top_p)
        ids = kept if ids is None else ids[kept]
        weights = weights[kept]
    place = pick(weights, number)
    return place if ids is None else int(ids[place])


def largest(values: Logits, count: int) -> NDArray[np.int64]:
    """Ids of the `count` largest values, ascending; among equal values the lower ids. count < len(values)."""
    ids = _at_least(values, count)
    if len(ids) == count:
        return ids
    order = np.argsort(-values[ids], kind="stable")[:count]
    return np.sort(ids[order])


def nucleus(weights: Logits, mass: float) -> NDArray[np.int64]:
    """Ids, ascending, of the fewest largest weights whose sum is at least `mass` of the total; among equal weights the
    lower ids come first. At least one. No weight is negative; mass < 1.
    """
    total = float(_block_sums(weights).sum())
    needed = mass * total
    # Whoever is lighter than this is, all together, lighter than what may be left out; half of it is for rounding.
    ids = np.flatnonzero(weights >= (1 - mass) * total / (2 * len(weights)))
    heavy = weights[ids]
    if len(ids) <= _FEW:
        return ids[np.sort(_head(heavy, np.arange(len(ids)), needed))]
    # Bins by exponent and six bits of the mantissa, which order floats that are not negative: only one bin is sorted.
    bins = (heavy.view(np.int32) >> 17).astype(np.intp)
    from_top = np.cumsum(np.bincount(bins, heavy.astype(np.float64))[::-1])
    place = min(int(np.searchsorted(from_top, needed)), len(from_top) - 1)
    border = len(from_top) - 1 - place
    missing = needed - (from_top[place - 1] if place else 0.0)
    kept = bins > border
    kept[_head(heavy, np.flatnonzero(bins == border), missing)] = True
    return ids[kept]


def _head(weights: Logits, ids: NDArray[np.int64], needed: float) -> NDArray[np.int64]:
    """The fewest of these (ascending) ids, largest weights first, that sum up to `needed`; at least one."""
    order = np.argsort(-weights[ids], kind="stable")
    cumulated = np.cumsum(weights[ids[order]], dtype=np.float64)
    return ids[order[: int(np.searchsorted(cumulated, needed)) + 1]]


def pick(weights: Logits, number: float) -> int:
    """The place at which the cumulated weights pass `number` of their total. Places of weight 0 are never picked."""
    cumulated = np.cumsum(_block_sums(weights))
    target = number * cumulated[-1]
    block = min(int(np.searchsorted(cumulated, target, side="right")), len(cumulated) - 1)
    if block:
        target -= cumulated[block - 1]
    inside = np.cumsum(weights[block * _BLOCK : (block + 1) * _BLOCK], dtype=np.float64)
    place = int(np.searchsorted(inside, target, side="right"))
    if place >= len(inside):  # rounding between the two sums: the last place so far with any weight
        place = int(np.flatnonzero(weights[: (block + 1) * _BLOCK])[-1]) - block * _BLOCK
    return block * _BLOCK + place


def _at_least(values: Logits, count: int) -> NDArray[np.int64]:
    """Ids, ascending, of all values from some bound on, which at least `count` values reach: a small set found cheaply,
    by the count-th largest of the maxima of groups.
    """
    groups = len(values) // _GROUP
    maxima = values[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0)  # by columns: that runs in full vectors
    if count <= len(maxima):
        bound = np.partition(maxima, len(maxima) - count)[len(maxima) - count]
    else:
        bound = np.partition(values, len(values) - count)[len(values) - count]
    return np.flatnonzero(values >= bound)


def _block_sums(weights: Logits) -> NDArray[np.float64]:
    """Sums of successive blocks, each in single precision, the last one shorter."""
    whole = len(weights) // _BLOCK * _BLOCK
    sums = np.einsum("ij->i", weights[:whole].reshape(-1, _BLOCK))  # thrice as fast as sum(axis=1)
    return np.append(sums, weights[whole:].sum()).astype(np.float64)


def _adjusted(logits: Logits, sequence: SequenceSampling) -> Logits:
    """The logits after penalties and with stop tokens out of reach while min_tokens are not reached. Copies only if
    something changes.
    """
    params, counts = sequence.params, sequence.counts
    if counts:
        ids = np.fromiter(counts.keys(), dtype=np.int64, count=len(counts))
        times = np.fromiter(counts.values(), dtype=np.float32, count=len(counts))
        logits = logits.copy()
        logits[ids] -= np.float32(params.presence_penalty) + np.float32(params.frequency_penalty) * times
    if sequence.generated < params.min_tokens and len(sequence.stop_ids):
        logits = logits if counts else logits.copy()
        logits[sequence.stop_ids[sequence.stop_ids < len(logits)]] = -np.inf
    return logits


def _not_finite(row: Logits) -> str:
    bad = int((~np.isfinite(row)).sum())
    return f"the model's logits are not finite: {bad:,} of {len(row):,} are NaN or infinite."
