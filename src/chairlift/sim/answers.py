"""What each simulated request lived through, kept so that a jump over n steps costs as much as one step.

Requests that get their tokens in the same steps form a company: they share the runs of times between them, and while
nobody joins or leaves, a step only hands each of them its run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import compress

from chairlift.core.plan import StepEvents, StepOutcome, StepPlan
from chairlift.core.request import FinishReason, Nanoseconds, Request
from chairlift.core.runs import Stretches
from chairlift.engine.answer import Stage
from chairlift.engine.book import AnswerBook
from chairlift.records.gaps import GapRun
from chairlift.records.schema import RequestRecord


class Company:
    """Those who get a token in every one of the same steps."""

    __slots__ = ("add", "last", "names")

    def __init__(self, names: tuple[str, ...], answers: list[SimulatedAnswer], last: Nanoseconds) -> None:
        self.names = names
        self.add: list[Callable[[GapRun], None]] = [answer.runs.append for answer in answers]
        self.last = last
        """When they had their last token."""


class SimulatedAnswer:
    """One request. See AnswerBook's Tracked."""

    __slots__ = (
        "admitted",
        "arrival",
        "cached_tokens",
        "company",
        "finished",
        "first_computed",
        "first_released",
        "preemptions",
        "prompt_tokens",
        "request_id",
        "runs",
        "stage",
        "streamed",
        "tokens_waiting",
    )

    def __init__(self, request: Request, now: Nanoseconds) -> None:
        self.request_id = request.request_id
        self.prompt_tokens = len(request.prompt)
        self.arrival = now if request.arrival is None else request.arrival
        self.stage = Stage.WAITING
        self.tokens_waiting = self.prompt_tokens
        self.cached_tokens = 0
        self.preemptions = 0
        self.admitted: Nanoseconds | None = None
        self.first_computed: Nanoseconds | None = None
        self.first_released: Nanoseconds | None = None
        self.finished: Nanoseconds | None = None
        self.streamed = True
        self.company: Company | None = None
        """Its last one."""
        self.runs: list[GapRun] = []

    @property
    def generated(self) -> int:
        """Tokens generated so far."""
        return 0 if self.first_computed is None else 1 + sum(run.gaps for run in self.runs)

    def computed(self, company: Company, planned: Nanoseconds, runs: tuple[GapRun, ...]) -> None:
        """It got tokens in steps planned from then on, and goes on in this company."""
        before, self.company = self.company, company
        if before is None:
            # The first token comes with a step of its own; a jump is made of later ones.
            self.first_computed = planned + runs[0].at(0)
        elif before.last == planned:
            self.runs += runs
        else:
            first, *rest = runs
            self.runs.append(GapRun(1, planned + first.at(0) - before.last))
            self.runs += [first.after(1), *rest] if first.gaps > 1 else rest

    def released(self, tokens: int, now: Nanoseconds) -> None:
        """So many tokens leave at once."""
        if self.first_released is None:
            self.first_released = now
        if tokens != 1 or self.company is None or self.company.last != now:
            self.streamed = False

    def record(self, policy: str, now: Nanoseconds, reason: FinishReason, error: str) -> RequestRecord:
        """Its result has left."""
        return RequestRecord(
            request_id=self.request_id,
            policy=policy,
            arrival=self.arrival,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.generated,
            preemptions=self.preemptions,
            admitted=self.admitted,
            first_token_computed=self.first_computed,
            first_token_released=self.first_released,
            finished=now if self.finished is None else self.finished,
            released=now,
            streamed=self.streamed,
            finish_reason=reason,
            error=error,
            gap_runs=tuple(self.runs),
        )


class Answers:
    """All requests in progress."""

    def __init__(self) -> None:
        self.book = AnswerBook[SimulatedAnswer]()
        self._company = Company((), [], 0)

    def computed(
        self,
        plan: StepPlan,
        outcome: StepOutcome,
        runs: tuple[GapRun, ...],
        now: Nanoseconds,
        *,
        streamed: bool,
    ) -> None:
        """The plan's tokens are computed: the last of them now.

        Args:
            plan: as it was committed.
            outcome: of it; only who failed counts.
            runs: from the plan to the first repeat's end, and from each to the next.
            now: the commit.
            streamed: whether each token leaves in the step that computed it.
        """
        company = self._company
        names = plan.request_ids
        if plan.single_token_rows < len(plan) or plan.token_counts.dead or outcome.failures:
            rows = enumerate(plan.samples)
            names = tuple(compress(names, [sampled and row not in outcome.failures for row, sampled in rows]))
        if names == company.names and company.last == plan.now:
            for run in runs:
                for add in company.add:
                    add(run)
            company.last = now
            return
        answers = [self.book[name] for name in names]
        self._company = company = Company(names, answers, now)
        for answer in answers:
            answer.computed(company, plan.now, runs)
            if streamed and answer.first_released is None:
                answer.first_released = answer.first_computed

    def released(self, events: StepEvents, now: Nanoseconds) -> None:
        """Whole answers leave, and whatever else was held back."""
        for name, tokens in _counted(events).items():
            if name in self.book:
                self.book[name].released(tokens, now)


def _counted(events: StepEvents) -> Mapping[str, int]:
    """How many tokens of whom left."""
    names = events.request_ids
    if isinstance(names, Stretches):
        return names.counted()
    return Counter(names)
