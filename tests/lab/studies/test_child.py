import pytest

from chairlift.lab.studies.child import Attempt, attempt, read_answer, start


def test_a_child_says_how_it_went() -> None:
    """Its last line counts, whatever libraries print before."""
    assert read_answer(0, 'noise\n{"outcome": "started", "words": "in all 2 GiB"}\n', "") == Attempt(
        "started", "in all 2 GiB"
    )


@pytest.mark.parametrize(("status", "words"), [(-9, "signal 9. Killed"), (134, "exit status 134. Killed")])
def test_a_child_that_was_ended_is_told_by_its_status(status: int, words: str) -> None:
    """The system asks nobody."""
    assert read_answer(status, "", "terminate called\nKilled\n") == Attempt("ended by the system", words)


def test_a_model_that_is_not_there_is_refused_in_its_own_words() -> None:
    """The same as in this process."""
    assert start("/nowhere.gguf", {}).outcome == "refused"


def test_a_limited_process_is_a_process_of_its_own() -> None:
    """With too little room for Python's own libraries it does not get far, and this process does not notice."""
    done = attempt("/nowhere.gguf", {}, 64 * 2**20)

    assert done.outcome in {"ended by the system", "out of memory", "refused"}
    assert done.words
