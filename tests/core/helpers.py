"""What the scheduler's tests share: short ways to make a scheduler and a request, and a small engine to drive them."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from chairlift.core.blocks import BlockPool
from chairlift.core.config import KVCapacity, SchedulerConfig
from chairlift.core.errors import StepFailed
from chairlift.core.journal import Entry
from chairlift.core.plan import Finished, StepEvents, StepOutcome, StepPlan, Wait
from chairlift.core.request import Accepted, FinishReason, Request
from chairlift.core.scheduler import Scheduler
from chairlift.runners.fake import FakeRunner, next_token

BLOCK_SIZES = (1, 16, 32)
"""The sizes that the regression suite runs at."""

MILLISECOND = 1_000_000


def blocks_of(tokens: int, block_size: int) -> int:
    """Blocks that hold so many positions, counted one by one rather than by the scheduler's formula."""
    return len(range(0, tokens, block_size))


def make_scheduler(
    *,
    num_blocks: int = 64,
    block_size: int = 16,
    pool: BlockPool | None = None,
    journal: list[Entry] | None = None,
    **settings: Any,
) -> Scheduler:
    """A scheduler over a pool of so many blocks; `settings` are SchedulerConfig's fields."""
    capacity = KVCapacity(block_size, num_blocks, scratch_block=num_blocks)
    return Scheduler(SchedulerConfig(**settings), capacity, pool=pool, journal=journal)


def request(name: str = "r", prompt: int | Sequence[int] = 8, max_tokens: int | None = 4, **fields: Any) -> Request:
    """A request; a prompt given as a number has so many tokens, which no other name's prompt begins with."""
    if isinstance(prompt, int):
        draw = crc32(name.encode())
        prompt = [1 + (draw + 7919 * i) % 49_999 for i in range(prompt)]
    return Request(name, prompt, max_tokens, **fields)


def submit(scheduler: Scheduler, *requests: Request, now: int = 0) -> None:
    """Submit requests that have to be accepted."""
    for one in requests:
        verdict = scheduler.submit(one, now)
        assert isinstance(verdict, Accepted), verdict


def solo_tokens(one: Request, max_tokens: int, vocabulary: int = 50_000) -> tuple[list[int], FinishReason]:
    """What FakeRunner generates for a request that runs alone, by its definition, and how the answer ends."""
    tokens = array("q", one.prompt)
    for count in range(1, max_tokens + 1):
        tokens.append(next_token(tokens.tobytes(), vocabulary))
        if count >= one.min_tokens and tokens[-1] in one.stop_ids:
            return list(tokens[len(one.prompt) :]), FinishReason.STOP
    return list(tokens[len(one.prompt) :]), FinishReason.LENGTH


def any_outcome(plan: StepPlan, *, device_time: int = MILLISECOND, token: int = 7) -> StepOutcome:
    """An outcome for tests in which the tokens do not matter."""
    return StepOutcome([token] * len(plan.sampled_rows), device_time)


@dataclass
class Log:
    """Everything that came out of a scheduler."""

    plans: list[StepPlan] = field(default_factory=list)
    """Committed ones. Their tables are live: `widths` has what they held."""
    widths: list[tuple[int, ...]] = field(default_factory=list)
    """Blocks in each row's table, as planned."""
    waits: list[Wait] = field(default_factory=list)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    """Released tokens by request."""
    finished: dict[str, Finished] = field(default_factory=dict)
    preempted: list[str] = field(default_factory=list)

    def take(self, events: StepEvents) -> None:
        """Note what a call told, and check that it is told once."""
        for name, token in zip(events.request_ids, events.tokens, strict=True):
            assert name not in self.finished, f"a token of {name} after its end"
            self.tokens.setdefault(name, []).append(token)
        for one in events.finished:
            assert one.request_id not in self.finished, f"{one.request_id} finished twice"
            self.finished[one.request_id] = one
        self.preempted += events.preempted


class Driver:
    """The smallest engine: plan, execute on a FakeRunner, commit; time moves by what the runner says."""

    def __init__(self, scheduler: Scheduler, runner: FakeRunner | None = None, now: int = 0) -> None:
        self.scheduler = scheduler
        capacity = scheduler.capacity
        self.runner = runner or FakeRunner(num_blocks=capacity.num_blocks, block_size=capacity.block_size)
        self.now = now
        self.log = Log()

    def step(self) -> StepPlan | Wait:
        """One plan, carried out. A Wait that names a time is waited for."""
        plan = self.scheduler.plan(self.now)
        if isinstance(plan, Wait):
            self.log.waits.append(plan)
            if plan.until is not None:
                assert plan.until > self.now, "a wait that is over already would spin"
                self.now = plan.until
            return plan
        widths = tuple(len(table) for table in plan.tables)
        try:
            outcome = self.runner.execute(plan)
        except StepFailed:
            self.log.take(self.scheduler.abort(plan, self.now))
            return plan
        self.now += outcome.device_time
        self.log.take(self.scheduler.commit(plan, outcome, self.now))
        self.log.plans.append(plan)
        self.log.widths.append(widths)
        return plan

    def steps(self, count: int) -> list[StepPlan | Wait]:
        return [self.step() for _ in range(count)]

    def run(self, most: int = 10_000) -> Log:
        """Until nothing is held, or nothing but an event could change anything."""
        for _ in range(most):
            if not self.scheduler.has_work:
                return self.log
            plan = self.step()
            if isinstance(plan, Wait) and plan.until is None:
                return self.log
        raise AssertionError(f"not done after {most} steps")


def drive(scheduler: Scheduler, *requests: Request, end_input: bool = True, most: int = 10_000) -> Log:
    """Submit everything at once and run to the end."""
    submit(scheduler, *requests)
    if end_input:
        scheduler.end_input(0)
    return Driver(scheduler).run(most)


def plans_of(answers: Iterable[StepPlan | Wait]) -> Iterator[StepPlan]:
    """The plans among what plan() answered."""
    return (answer for answer in answers if isinstance(answer, StepPlan))
