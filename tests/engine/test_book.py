from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.reasons import Decision, Reason
from chairlift.engine.answer import Answer, Stage
from chairlift.engine.book import AnswerBook
from chairlift.engine.params import SamplingParams
from tests.engine.tiny import Inbox, byte_tokenizer

TOKENIZER = byte_tokenizer()


def answer(request_id: str, prompt_tokens: int = 5) -> Answer:
    """One that has just arrived."""
    return Answer(
        request_id,
        prompt_tokens=prompt_tokens,
        params=SamplingParams(),
        stop_ids=frozenset(),
        tokenizer=TOKENIZER,
        arrival=0,
        sink=Inbox(),
    )


def decision(request_id: str, reason: Reason) -> Decision:
    """As the scheduler would say it."""
    return Decision(0, request_id, reason, {"cached_tokens": 3})


words = st.sampled_from(list(Reason))


@given(st.lists(st.tuples(st.sampled_from("abc"), words), max_size=30), st.sets(st.sampled_from("abc")))
def test_counts_are_what_counting_again_gives(story: list[tuple[str, Reason]], leavers: set[str]) -> None:
    """Whatever is decided in whatever order, the running totals equal a recount over the answers."""
    book = AnswerBook[Answer]()
    for number, name in enumerate("abc"):
        book.add(answer(name, prompt_tokens=number + 1))
    for now, (name, reason) in enumerate(story):
        book.note([decision(name, reason)], now)
        book[name].generated += 1
    for name in leavers:
        book.remove(name)

    stages = [one.stage for one in book]
    assert len(book) == 3 - len(leavers)
    assert (book.waiting, book.running) == (stages.count(Stage.WAITING), stages.count(Stage.RUNNING))
    assert book.waiting_tokens == sum(one.tokens_waiting for one in book if one.stage is Stage.WAITING)


def test_a_preempted_answer_waits_with_all_its_tokens() -> None:
    """What waits is what must be computed again: prompt and answer so far; the first admission stays."""
    book = AnswerBook[Answer]()
    book.add(answer("a"))
    book.note([decision("a", Reason.ADMITTED)], 10)
    book["a"].generated = 4
    book.note([decision("a", Reason.PREEMPTED)], 20)

    assert (book.waiting, book.waiting_tokens, book["a"].preemptions) == (1, 9, 1)
    book.note([decision("a", Reason.RESUMED)], 30)
    assert (book.waiting, book.waiting_tokens, book.running) == (0, 0, 1)
    assert (book["a"].admitted, book["a"].cached_tokens) == (10, 3)


def test_a_late_word_about_a_namesake_is_undone_by_the_acceptance() -> None:
    """An id used again at once: the old request's end comes first, then the new one's acceptance."""
    book = AnswerBook[Answer]()
    book.add(answer("a"))

    book.note([decision("a", Reason.CANCELLED), decision("a", Reason.ACCEPTED)], 10)

    assert (book["a"].stage, book["a"].finished) == (Stage.WAITING, None)
    assert (book.waiting, book.running) == (1, 0)


def test_decisions_about_who_left_are_passed_over() -> None:
    """The scheduler's last word may come after the request is gone."""
    book = AnswerBook[Answer]()

    book.note([decision("gone", Reason.FINISHED)], 10)

    assert len(book) == 0
