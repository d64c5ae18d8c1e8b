from chairlift.lab.loads.words import WORDS


def test_words_are_distinct_and_plain() -> None:
    """Small letters only, none twice, and enough of them that four make a nonce."""
    assert len(set(WORDS)) == len(WORDS) > 500
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)
