from array import array
from dataclasses import dataclass, field

from chairlift.core.accounts import Accounts
from chairlift.core.ledger import Category
from chairlift.core.plan import RowKind, StepOutcome, StepPlan, TokenCounts
from chairlift.core.steptime import StepFeatures, StepTimePredictor


class Watched(StepTimePredictor):
    """Says what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[StepFeatures, int]] = []

    def observe(self, features: StepFeatures, duration: int) -> None:
        self.seen.append((features, duration))
        super().observe(features, duration)


@dataclass
class Booked:
    """Accounts that are told of steps, each of which takes a microsecond more for each position read."""

    accounts: Accounts = field(default_factory=Accounts)
    predictor: Watched = field(default_factory=Watched)
    now: int = 0

    def __post_init__(self) -> None:
        self.accounts.predictor = self.predictor
        self.accounts.ledger.pass_to(0, Category.HOST)

    def book(self, starts: tuple[int, ...], *, times: int = 1, dead: int = 0, prompt: int = 0) -> None:
        """Decode rows, the last of them dead, and a prompt of so many tokens."""
        singles = len(starts)
        kinds = (RowKind.DECODE,) * (singles - dead) + (RowKind.DEAD,) * dead + (RowKind.PREFILL,) * bool(prompt)
        growth = singles - dead

        def time(repeat: int) -> int:
            return 1000 * (50 + singles + prompt + sum(starts) + growth * repeat)

        plan = StepPlan(
            step=0,
            now=self.now,
            policy="static",
            request_ids=tuple(map(str, range(len(kinds)))),
            kinds=kinds,
            starts=(*starts, *(0,) * bool(prompt)),
            counts=(1,) * singles + (prompt,) * bool(prompt),
            paddings=(0,) * len(kinds),
            samples=(True,) * len(kinds),
            tokens=(0,) * (singles + prompt),
            tables=(array("i"),) * len(kinds),
            single_token_rows=singles,
            token_counts=TokenCounts(prefill=prompt, decode=growth, dead=dead),
        )
        device_time = sum(map(time, range(times)))
        self.now += device_time
        outcome = StepOutcome((0,) * len(kinds) * times, device_time, times=time)
        self.accounts.book(plan, outcome, self.now, times=times, slots=8, switching=False)


def test_it_sees_every_step_at_first_and_then_ever_fewer_of_a_run() -> None:
    """64 without exception; then of 1,000 equal steps the first, every eighth, and from the 128th on fewer."""
    booked = Booked()
    for number in range(70):
        booked.book((10 + 100 * number,))
    assert len(booked.predictor.seen) == 70, "steps that do not go on from each other"
    for number in range(1000):
        booked.book((10_000 + number,))

    seen = [features.context - 10_001 for features, _ in booked.predictor.seen[70:]]
    expected = [*range(0, 128, 8), *range(128, 256, 16), *range(256, 512, 32), *range(512, 1000, 64)]
    assert seen == expected


def test_a_step_with_a_prompt_is_always_seen_and_ends_a_run() -> None:
    """It is what the next ones cannot be told from."""
    booked = Booked()
    for number in range(64):
        booked.book((10 + 100 * number,))
    for number in range(5):
        booked.book((9000 + 2 * number,), prompt=7)
        booked.book((9001 + 2 * number,))

    assert len(booked.predictor.seen) == 74


def test_a_jump_is_seen_as_its_steps_are() -> None:
    """The same features and durations, the same savings, however the run is cut."""
    cuts = ((300,), (1,) * 300, (7, 120, 1, 1, 100, 71))
    all_seen, reports = [], []
    for cut in cuts:
        booked, done = Booked(), 0
        for number in range(60):
            booked.book((10 + 100 * number, 5), prompt=number % 7)
        for times in cut:
            booked.book((10_000 + done, 500, 500), times=times, dead=2)
            done += times
        all_seen.append(booked.predictor.seen)
        reports.append(booked.accounts.ledger.report())

    assert all_seen[0] == all_seen[1] == all_seen[2]
    assert reports[0] == reports[1] == reports[2]
    assert reports[0].recoverable > 0


def test_without_the_times_of_its_steps_a_jump_is_taken_to_be_even() -> None:
    """Rounded so that their sum is the whole."""
    booked = Booked()
    plan_only = StepOutcome((0,) * 3, 10)
    booked.book((5,))
    booked.accounts.book(_decode(), plan_only, booked.now + 10, times=3, slots=1, switching=False)

    assert [duration for _, duration in booked.predictor.seen[1:]] == [4, 3, 3]


def _decode() -> StepPlan:
    return StepPlan(
        step=1,
        now=0,
        policy="continuous",
        request_ids=("a",),
        kinds=(RowKind.DECODE,),
        starts=(6,),
        counts=(1,),
        paddings=(0,),
        samples=(True,),
        tokens=(0,),
        tables=(array("i"),),
        single_token_rows=1,
        token_counts=TokenCounts(decode=1),
    )
