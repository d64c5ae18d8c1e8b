"""The answers in progress: they grow by what the device computed, and leave as the scheduler lets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from chairlift.core.plan import StepEvents, StepOutcome, StepPlan
from chairlift.core.reasons import Decision
from chairlift.core.request import FinishReason, Nanoseconds, TokenId
from chairlift.engine.answer import Answer, Sink
from chairlift.engine.book import AnswerBook
from chairlift.engine.observe import Recorder
from chairlift.engine.outputs import OutputDelta
from chairlift.engine.params import SamplingParams
from chairlift.engine.sampling import BatchSampler

Delivery = tuple[Sink, OutputDelta]


class Desk:
    """Everything per request that the scheduler does not keep. Not safe to share: EngineCore's lock guards it.

    Args:
        sampler: told who comes, whose tokens count, and who leaves.
        recorder: told of decisions and of whoever left.
    """

    def __init__(self, sampler: BatchSampler, recorder: Recorder) -> None:
        self.book = AnswerBook[Answer]()
        self._sampler = sampler
        self._recorder = recorder
        self._outbox: list[Delivery] = []
        self._ended: list[str] = []

    @property
    def busy(self) -> bool:
        """Whether any answer is in progress or undelivered."""
        return bool(self.book) or bool(self._outbox)

    def serves(self, request_id: str, sink: Sink) -> bool:
        """Whether the request with this id is in progress and goes to this sink."""
        return request_id in self.book and self.book[request_id].sink is sink

    def take_in(self, answer: Answer, params: SamplingParams, stop_ids: frozenset[TokenId]) -> None:
        """A request was accepted."""
        self._sampler.add(answer.request_id, params, stop_ids)
        self.book.add(answer)

    def note(self, decisions: Sequence[Decision], now: Nanoseconds) -> None:
        """Follow what the scheduler decided."""
        if decisions:
            self.book.note(decisions, now)
            self._recorder.decisions(decisions, now)

    def read(self, plan: StepPlan, outcome: StepOutcome) -> StepOutcome:
        """Let the texts grow by the step's tokens. Returns the outcome with those whose stop string is complete."""
        stops: dict[int, FinishReason] = {}
        book, accept, failures = self.book, self._sampler.accept, outcome.failures
        for row, token in zip(plan.sampled_rows, outcome.tokens, strict=True):
            if row in failures:
                continue
            request_id = plan.request_ids[row]
            accept(request_id, token)
            reason = book[request_id].push(token)
            if reason is not None:
                stops[row] = reason
        return replace(outcome, stops=stops) if stops else outcome

    def committed(self, plan: StepPlan, outcome: StepOutcome, now: Nanoseconds) -> None:
        """The tokens that were read are computed now."""
        for row in plan.sampled_rows:
            if row not in outcome.failures:
                self.book[plan.request_ids[row]].computed(now)

    def release(self, events: StepEvents, policy: str, now: Nanoseconds) -> None:
        """What the scheduler released goes out as text."""
        self.note(events.decisions, now)
        released: dict[str, list[TokenId]] = {}
        for request_id, token in zip(events.request_ids, events.tokens, strict=True):
            released.setdefault(request_id, []).append(token)
        for one in events.finished:
            self._end(one.request_id, released.pop(one.request_id, []), one.reason, one.message, policy, now)
        for request_id, tokens in released.items():
            answer = self.book[request_id]
            self._outbox.append((answer.sink, answer.take(tokens, now)))

    def end_all(self, reason: FinishReason, error: str, policy: str, now: Nanoseconds) -> None:
        """Whoever is still here ends, without the scheduler."""
        for answer in tuple(self.book):
            self._end(answer.request_id, [], reason, error, policy, now)

    def deliveries(self) -> list[Delivery]:
        """What has left since the last call, in order."""
        outbox, self._outbox = self._outbox, []
        return outbox

    def ended(self) -> list[str]:
        """Who has ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def _end(
        self,
        request_id: str,
        tokens: Sequence[TokenId],
        reason: FinishReason,
        error: str,
        policy: str,
        now: Nanoseconds,
    ) -> None:
        answer = self.book.remove(request_id)
        self._sampler.remove(request_id)
        self._ended.append(request_id)
        self._outbox.append((answer.sink, answer.end(tokens, now, reason, error)))
        self._recorder.request(answer.record(policy=policy, now=now, reason=reason, error=error))
