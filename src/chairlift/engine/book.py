"""The answers in progress, and how many of them wait and run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from chairlift.core.reasons import Decision, Reason
from chairlift.core.request import Nanoseconds
from chairlift.engine.answer import Stage

_STAGES = {
    Reason.ACCEPTED: Stage.WAITING,
    Reason.ADMITTED: Stage.RUNNING,
    Reason.RESUMED: Stage.RUNNING,
    Reason.PREEMPTED: Stage.WAITING,
    Reason.FINISHED: Stage.ENDED,
    Reason.CANCELLED: Stage.ENDED,
    Reason.FAILED: Stage.ENDED,
}


class Tracked(Protocol):
    """What the book keeps of an answer, real or simulated."""

    request_id: str
    prompt_tokens: int
    cached_tokens: int
    preemptions: int
    stage: Stage
    tokens_waiting: int
    """Tokens to compute when it was last queued."""
    admitted: Nanoseconds | None
    finished: Nanoseconds | None

    @property
    def generated(self) -> int:
        """Tokens generated so far."""
        ...


A = TypeVar("A", bound=Tracked)


class AnswerBook(Generic[A]):
    """Answers by request id. Their stages follow the scheduler's decisions, so that no step counts anything twice."""

    def __init__(self) -> None:
        self._answers: dict[str, A] = {}
        self._counts = dict.fromkeys(Stage, 0)
        self.waiting_tokens = 0
        """Tokens to compute for those that wait."""

    def __len__(self) -> int:
        return len(self._answers)

    def __iter__(self) -> Iterator[A]:
        return iter(self._answers.values())

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._answers

    def __getitem__(self, request_id: str) -> A:
        return self._answers[request_id]

    @property
    def waiting(self) -> int:
        return self._counts[Stage.WAITING]

    @property
    def running(self) -> int:
        return self._counts[Stage.RUNNING]

    def add(self, answer: A) -> None:
        self._answers[answer.request_id] = answer
        self._enter(answer, Stage.WAITING)

    def remove(self, request_id: str) -> A:
        answer = self._answers.pop(request_id)
        self._leave(answer)
        return answer

    def note(self, decisions: Iterable[Decision], now: Nanoseconds) -> None:
        """Follow what the scheduler decided. A decision about a request that left already is passed over."""
        for decision in decisions:
            stage = _STAGES.get(decision.reason)
            answer = self._answers.get(decision.request_id)
            if stage is None or answer is None:
                continue
            if decision.reason is Reason.ADMITTED:
                answer.admitted = now
                answer.cached_tokens = decision.numbers["cached_tokens"]
            elif decision.reason is Reason.PREEMPTED:
                answer.preemptions += 1
            answer.finished = now if stage is Stage.ENDED else None
            if stage is not answer.stage:
                self._leave(answer)
                self._enter(answer, stage)

    def _enter(self, answer: A, stage: Stage) -> None:
        answer.stage = stage
        self._counts[stage] += 1
        if stage is Stage.WAITING:
            answer.tokens_waiting = answer.prompt_tokens + answer.generated
            self.waiting_tokens += answer.tokens_waiting

    def _leave(self, answer: A) -> None:
        self._counts[answer.stage] -= 1
        if answer.stage is Stage.WAITING:
            self.waiting_tokens -= answer.tokens_waiting
