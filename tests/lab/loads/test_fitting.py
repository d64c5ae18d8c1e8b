import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.fitting import Guess, fit, joined, try_words
from chairlift.lab.loads.words import WORDS


def test_words_of_one_token_are_kept_where_there_are_enough() -> None:
    """A tokenizer of words keeps all; one that knows a few long words by heart keeps those that are left."""
    assert try_words(str.split) == (list(WORDS), Guess(1.0, 0.0))
    words, guess = try_words(lambda text: [part for word in text.split() for part in (word[:4], word[4:]) if part])
    assert set(words) == {word for word in WORDS if len(word) <= 4}
    assert guess.tokens_per_word == 1


def test_with_too_few_of_them_all_words_are_used_and_their_mean_reckoned_with() -> None:
    """A tokenizer of characters; and what it puts around a text is known."""
    words, guess = try_words(lambda text: ["bos", *text, "eos"])

    assert words == WORDS
    assert guess.overhead == 2
    assert guess.tokens_per_word == pytest.approx(1 + sum(map(len, WORDS)) / len(WORDS))


def test_a_guess_is_learned_from_two_probes() -> None:
    """10 words were 17 tokens and 110 were 147: 1.3 a word and 4 around them."""
    assert Guess.from_usage((10, 17), (110, 147)) == Guess(1.3, 4.0)
    with pytest.raises(ConfigError, match="10 words were 17 tokens, 5 were 9: that tells no length"):
        Guess.from_usage((10, 17), (5, 9))


def test_joining_takes_off_the_first_space_alone() -> None:
    """Pieces bring their own spaces."""
    assert joined([" a", " b", ".", " c"]) == "a b. c"
    assert joined([]) == ""


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 7))
def test_whatever_it_begins_with_the_count_is_reached(start: int, wanted: int, size: int) -> None:
    """Too many or too few words, and words of up to eight characters each a token."""
    more = [f" {'x' * (1 + (size + number) % 7)}" for number in range(20)]

    pieces = fit([" abc"] * start, more, lambda pieces: len("".join(pieces)), wanted, 4.0)

    assert len("".join(pieces)) == wanted


def test_what_cannot_be_reached_ends_all_the_same() -> None:
    """Where every piece counts two, an odd number is not to be had; nor less than what stands before."""
    assert len(fit([], [" a"], lambda pieces: 2 * len(pieces), 7, 2.0)) in {3, 4}
    assert fit([" a"], [" a"], lambda pieces: 5 + len(pieces), 3, 1.0) == []
