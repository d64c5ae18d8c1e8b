import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.lab.loads.draws import Draws, exponential, gamma, normal, stream_bytes


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2000)), min_size=1, max_size=40))
def test_a_draw_depends_on_stream_and_index_alone(asked: list[tuple[str, int]]) -> None:
    """In whatever order numbers are asked for, each is what a fresh source gives."""
    draws = Draws(7)

    assert [draws.uniform(*each) for each in asked] == [Draws(7).uniform(*each) for each in asked]


def test_streams_and_seeds_differ() -> None:
    """Neither another stream nor another seed repeats a number."""
    drawn = {Draws(seed).uniform(stream, index) for seed in range(3) for stream in "ab" for index in range(300)}

    assert len(drawn) == 3 * 2 * 300


def test_bytes_are_the_same_for_ever() -> None:
    """The first bytes of a stream are what they were when this was written, and a longer cut begins with a shorter."""
    assert stream_bytes(1, "tokens/own", 5, 8).hex() == "8702511466c22b49"
    assert stream_bytes(1, "tokens/own", 5, 100)[:8] == stream_bytes(1, "tokens/own", 5, 8)


def test_uniforms_are_uniform() -> None:
    """Mean 1/2, standard deviation 1/sqrt(12), in [0, 1)."""
    drawn = list(itertools.islice(Draws(1).uniforms("x"), 20_000))

    assert statistics.fmean(drawn) == pytest.approx(0.5, abs=0.01)
    assert statistics.pstdev(drawn) == pytest.approx(12**-0.5, abs=0.01)
    assert min(drawn) >= 0
    assert max(drawn) < 1


def test_inversions_have_the_moments_they_should() -> None:
    """Exponential: mean and deviation 1. Normal: mean 0, deviation 1; both finite at the ends of [0, 1)."""
    drawn = list(itertools.islice(Draws(1).uniforms("x"), 20_000))
    exponentials, normals = [exponential(u) for u in drawn], [normal(u) for u in drawn]

    assert statistics.fmean(exponentials) == pytest.approx(1, abs=0.03)
    assert statistics.pstdev(exponentials) == pytest.approx(1, abs=0.03)
    assert statistics.fmean(normals) == pytest.approx(0, abs=0.03)
    assert statistics.pstdev(normals) == pytest.approx(1, abs=0.03)
    assert exponential(0.0) == 0
    assert -9 < normal(0.0) < -8
    assert 8 < normal(1 - 2**-53) < 9


@pytest.mark.parametrize("shape", [0.1, 0.5, 1.0, 4.0, 100.0])
def test_a_gamma_has_mean_one_and_the_deviation_of_its_shape(shape: float) -> None:
    """Mean 1, coefficient of variation shape ** -0.5, below shape 1 (the boosted case) too."""
    uniforms = Draws(3).uniforms("x")
    drawn = [gamma(shape, uniforms) for _ in range(30_000)]

    assert statistics.fmean(drawn) == pytest.approx(1, abs=0.06)
    assert statistics.pstdev(drawn) / statistics.fmean(drawn) == pytest.approx(shape**-0.5, rel=0.06)
    assert min(drawn) >= 0
