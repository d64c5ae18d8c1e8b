import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from chairlift.engine.params import SamplingParams
from chairlift.engine.sampling import BatchSampler, choose, largest, nucleus, pick

VOCABULARY = 1_000
NO_STOPS: frozenset[int] = frozenset()


def logits_of(seed: int, rows: int = 1, vocabulary: int = VOCABULARY) -> NDArray[np.float32]:
    """Logits [rows, vocabulary] with a spread like a model's."""
    return np.random.default_rng(seed).standard_normal((rows, vocabulary), dtype=np.float32) * 3


def sampler_with(requests: dict[str, SamplingParams], stop_ids: frozenset[int] = NO_STOPS) -> BatchSampler:
    """A sampler that knows these requests; those without a seed get keys 1, 2, ..."""
    sampler = BatchSampler(entropy=iter(range(1, 1000)).__next__)
    for name, params in requests.items():
        sampler.add(name, params, stop_ids)
    return sampler


def softmax(logits: NDArray[np.float32], temperature: float = 1.0) -> NDArray[np.float64]:
    """Probabilities in double precision."""
    scaled = (logits.astype(np.float64) - logits.max()) / temperature
    weights = np.exp(scaled)
    return np.asarray(weights / weights.sum())


def kept_by_definition(logits: NDArray[np.float32], params: SamplingParams) -> set[int]:
    """Candidates by the textbook: sort everything, lower ids first among equals, cut at top_k, then at top_p."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if params.top_k > 0:
        order = order[: params.top_k]
    chances = softmax(logits, params.temperature)[order]
    chances /= chances.sum()
    kept, mass = set(), 0.0
    for i, chance in zip(order, chances, strict=True):
        if mass >= params.top_p:
            break
        kept.add(i)
        mass += chance
    return kept


# what may be picked

values = st.floats(-20, 20, width=32)
small_logits = st.lists(values, min_size=2, max_size=400).map(lambda row: np.array(row, dtype=np.float32))
# Longer ones repeat a short row, so that many values are equal and the distribution may be flat or steep.
any_logits = st.tuples(small_logits, st.integers(1, 12)).map(lambda pair: np.tile(pair[0], pair[1]))


@given(small_logits, st.data())
def test_largest_is_the_head_of_the_sorted_values(row: NDArray[np.float32], data: st.DataObject) -> None:
    """The count largest, lower ids first among equals, whatever the values; ids ascend."""
    count = data.draw(st.integers(1, len(row) - 1))

    expected = sorted(sorted(range(len(row)), key=lambda i: (-row[i], i))[:count])

    assert largest(row, count).tolist() == expected


@given(any_logits, st.floats(0.01, 0.999))
def test_the_nucleus_is_the_smallest_head_with_enough_mass(row: NDArray[np.float32], mass: float) -> None:
    """What is kept reaches the mass, and without its least member it would not."""
    weights = np.exp(row - row.max())

    kept = nucleus(weights, mass)

    total = weights.sum(dtype=np.float64)
    assert np.isin(np.argmax(weights), kept)
    assert weights[kept].sum(dtype=np.float64) >= mass * total * (1 - 1e-12)
    if len(kept) > 1:
        without = np.delete(kept, len(kept) - 1 - np.argmin(weights[kept][::-1]))
        assert weights[without].sum(dtype=np.float64) < mass * total * (1 + 1e-12)
        assert weights[kept].min() >= np.delete(weights, kept).max(initial=0)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.7),
        SamplingParams(temperature=2.0, top_k=5),
        SamplingParams(top_p=0.5),
        SamplingParams(top_p=0.999),
        SamplingParams(temperature=1.3, top_k=300, top_p=0.9),
        SamplingParams(top_k=100_000),
    ],
)
def test_only_what_the_definition_keeps_is_picked(params: SamplingParams) -> None:
    """Over a fine comb of uniform numbers the picked tokens are those of the textbook's cut, and each of any weight."""
    logits = logits_of(5)[0]
    expected = kept_by_definition(logits, params)

    picked = {choose(logits, params, number) for number in np.linspace(0, 1, 4_001)[:-1]}

    assert picked <= expected
    chances = softmax(logits, params.temperature)
    visible = {i for i in expected if chances[i] / chances[list(expected)].sum() > 1e-3}
    assert visible <= picked


@pytest.mark.parametrize(
    "params",
    [SamplingParams(), SamplingParams(temperature=0.5, top_k=20), SamplingParams(temperature=1.5, top_p=0.8)],
)
def test_tokens_come_as_often_as_they_should(params: SamplingParams) -> None:
    """200 tokens of each of 40 seeds follow the distribution (chi-square below its 99.9% point)."""
    logits = np.repeat(logits_of(11, vocabulary=50) / np.float32(3), 40, axis=0)
    names = [f"seed {seed}" for seed in range(40)]
    sampler = sampler_with({name: replace(params, seed=seed) for seed, name in enumerate(names)})
    counts = np.zeros(50)
    for _ in range(200):
        tokens = sampler(names, logits).tokens
        for name, token in zip(names, tokens, strict=True):
            sampler.accept(name, token)
            counts[token] += 1

    kept = sorted(kept_by_definition(logits[0], params))
    chances = softmax(logits[0], params.temperature)[kept]
    expected = 8_000 * chances / chances.sum()
    assert counts.sum() == counts[kept].sum()
    frequent = expected >= 5
    statistic = ((counts[kept] - expected) ** 2 / expected)[frequent].sum()
    degrees = int(frequent.sum()) - 1
    # Wilson and Hilferty's approximation of the chi-square distribution's 99.9% point.
    assert statistic < degrees * (1 - 2 / (9 * degrees) + 3.09 * math.sqrt(2 / (9 * degrees))) ** 3


@given(small_logits, st.floats(0, 1, exclude_max=True))
def test_a_pick_lies_where_the_cumulated_weight_passes_the_number(row: NDArray[np.float32], number: float) -> None:
    """The picked place is the inverse of the cumulated distribution, up to rounding, and has weight."""
    weights = np.exp(row - row.max())

    place = pick(weights, number)

    cumulated = np.cumsum(weights, dtype=np.float64) / weights.sum(dtype=np.float64)
    assert weights[place] > 0
    assert cumulated[place] > number - 1e-6
    assert place == 0 or cumulated[place - 1] <= number + 1e-6


@pytest.mark.parametrize("place", [0, 1, 127, 128, 500, 998, 999])
def test_the_only_token_with_weight_is_always_picked(place: int) -> None:
    """Wherever it lies in the blocks, and for numbers at both ends."""
    weights = np.zeros(VOCABULARY, dtype=np.float32)
    weights[place] = 0.25

    assert {pick(weights, number) for number in (0.0, 0.5, np.nextafter(1.0, 0.0))} == {place}


# whose number it is

Mixed = dict[str, SamplingParams]
MIXED: Mixed = {
    "greedy": SamplingParams(temperature=0),
    "plain": SamplingParams(seed=1),
    "cold": SamplingParams(seed=1, temperature=0.3, top_k=40),
    "nucleus": SamplingParams(seed=3, top_p=0.8),
    "penalised": SamplingParams(seed=4, presence_penalty=1, frequency_penalty=0.5),
    "greedy penalised": SamplingParams(temperature=0, frequency_penalty=2),
}


@given(st.permutations(sorted(MIXED)), st.integers(1, len(MIXED)))
def test_a_token_does_not_depend_on_row_or_company(order: Sequence[str], size: int) -> None:
    """Any rows in any order: each request gets the token it gets alone."""
    row_of = {name: logits_of(number)[0] for number, name in enumerate(MIXED)}
    alone = {name: sampler_with(MIXED)([name], row_of[name][None]).tokens[0] for name in MIXED}
    batch = order[:size]

    tokens = sampler_with(MIXED)(batch, np.stack([row_of[name] for name in batch])).tokens

    assert dict(zip(batch, tokens, strict=True)) == {name: alone[name] for name in batch}


def test_asking_again_changes_nothing_until_the_token_counts() -> None:
    """A step that is executed twice samples the same token twice; the next position has another number."""
    sampler = sampler_with({"a": SamplingParams(seed=5)})
    flat = np.zeros((1, VOCABULARY), dtype=np.float32)

    first, again = sampler(["a"], flat).tokens, sampler(["a"], flat).tokens
    sampler.accept("a", first[0])

    assert first == again
    assert sampler(["a"], flat).tokens != first


def test_requests_without_a_seed_differ() -> None:
    """Two requests without a seed draw from keys of their own; two with the same seed do not."""
    flat = np.zeros((2, VOCABULARY), dtype=np.float32)

    unseeded = sampler_with({"a": SamplingParams(), "b": SamplingParams()})(["a", "b"], flat).tokens
    seeded = sampler_with({"a": SamplingParams(seed=8), "b": SamplingParams(seed=8)})(["a", "b"], flat).tokens

    assert unseeded[0] != unseeded[1]
    assert seeded[0] == seeded[1]


def test_a_difference_in_the_last_bits_moves_no_token() -> None:
    """Logits that differ as the same row does in batches of other sizes (1e-4) give the same token at each of 2,000
    numbers that is not within 1e-3 of a boundary.
    """
    logits = logits_of(2)[0]
    nudged = logits + np.random.default_rng(0).uniform(-1e-4, 1e-4, VOCABULARY).astype(np.float32)
    boundaries = np.cumsum(softmax(logits))
    numbers = np.linspace(0, 1, 2_001)[:-1]
    clear = [number for number in numbers if np.abs(boundaries - number).min() > 1e-3]

    assert len(clear) > 100
    for number in clear:
        assert choose(logits, SamplingParams(), number) == choose(nudged, SamplingParams(), number)


# what must not be sampled


@pytest.mark.parametrize("temperature", [0, 1])
def test_stop_tokens_are_out_of_reach_until_min_tokens(temperature: float) -> None:
    """With min_tokens 2 the likeliest token, a stop token, is sampled as the third and not before."""
    logits = np.zeros((1, VOCABULARY), dtype=np.float32)
    logits[0, 7] = 50
    sampler = sampler_with({"a": SamplingParams(min_tokens=2, temperature=temperature, seed=1)}, frozenset({7, 5_000}))

    tokens = []
    for _ in range(3):
        tokens.append(sampler(["a"], logits).tokens[0])
        sampler.accept("a", tokens[-1])

    assert 7 not in tokens[:2]
    assert tokens[2] == 7


def test_penalties_take_what_openai_says_they_take() -> None:
    """A token that came twice loses presence_penalty + 2 x frequency_penalty; others lose nothing."""
    logits = np.zeros((1, 10), dtype=np.float32)
    logits[0, :3] = [5.0, 3.6, 3.4]
    params = SamplingParams(temperature=0, presence_penalty=0.5, frequency_penalty=0.5)
    sampler = sampler_with({"a": params})
    said = []
    for _ in range(5):
        said.append(sampler(["a"], logits).tokens[0])
        sampler.accept("a", said[-1])

    # 5.0, then 4.0 and 3.5 after one and two; token 1 at 3.6, then 2.6; token 2 at 3.4.
    assert said == [0, 0, 1, 0, 2]
    assert logits[0, 0] == 5.0


# rows that cannot be sampled


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda row: row.fill(np.nan),
        lambda row: row.put([17], np.nan),
        lambda row: row.put([999], np.inf),
        lambda row: row.fill(-np.inf),
    ],
    ids=["all NaN", "one NaN", "one +inf", "all -inf"],
)
def test_a_row_without_finite_logits_fails_alone(temperature: float, spoil: Callable[[object], None]) -> None:
    """NaN or +inf anywhere, or -inf everywhere, is that row's failure; the rows beside it get their tokens."""
    params = SamplingParams(temperature=temperature, seed=2)
    sampler = sampler_with({"a": params, "b": params, "c": params})
    logits = logits_of(3, rows=3)
    expected = sampler(["a", "b", "c"], logits).tokens
    spoil(logits[1])

    sampled = sampler(["a", "b", "c"], logits)

    assert set(sampled.failures) == {1}
    assert "not finite" in sampled.failures[1]
    assert [sampled.tokens[0], sampled.tokens[2]] == [expected[0], expected[2]]


def test_a_logit_of_minus_infinity_is_only_out_of_reach() -> None:
    """A token masked by the model itself is never sampled, and the row is sound."""
    logits = np.full((1, VOCABULARY), -np.inf, dtype=np.float32)
    logits[0, [3, 4]] = 1.0
    sampler = sampler_with({"a": SamplingParams(seed=1)})

    tokens: set[int] = set()
    for _ in range(50):
        sampled = sampler(["a"], logits)
        assert not sampled.failures
        sampler.accept("a", sampled.tokens[0])
        tokens.update(sampled.tokens)

    assert tokens == {3, 4}


def test_nothing_left_to_sample_is_a_failure_of_that_request() -> None:
    """Where only stop tokens have weight and min_tokens forbids them, the request fails with words."""
    logits = np.full((1, 10), -np.inf, dtype=np.float32)
    logits[0, 7] = 1.0
    sampler = sampler_with({"a": SamplingParams(min_tokens=1)}, frozenset({7}))

    assert "-inf" in sampler(["a"], logits).failures[0]


def test_the_logits_are_only_read() -> None:
    """A step's logits are the runner's: nothing in them changes, whatever the parameters."""
    sampler = sampler_with({**MIXED, "least": SamplingParams(min_tokens=3)}, frozenset({1}))
    for name in ("penalised", "greedy penalised"):
        sampler.accept(name, 3)
    logits = logits_of(1, rows=len(MIXED) + 1)
    before = logits.copy()
    logits.setflags(write=False)

    sampler([*MIXED, "least"], logits)

    assert (logits == before).all()


def test_who_left_is_forgotten() -> None:
    """A removed request can be added again and begins anew."""
    sampler = sampler_with({"a": SamplingParams(seed=5)})
    flat = np.zeros((1, VOCABULARY), dtype=np.float32)
    first = sampler(["a"], flat).tokens[0]
    sampler.accept("a", first)

    sampler.remove("a")
    sampler.remove("a")
    assert len(sampler) == 0
    sampler.add("a", SamplingParams(seed=5), NO_STOPS)

    assert sampler(["a"], flat).tokens == [first]
