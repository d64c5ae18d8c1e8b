from array import array

from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.batchers.lockstep import Lockstep
from chairlift.core.batchers.members import Member
from chairlift.core.config import KVCapacity, SchedulerConfig
from chairlift.core.plan import RowKind, StepPlan
from chairlift.core.sequence import Phase, Sequence
from chairlift.core.state import SchedulerState
from tests.core.helpers import request

SCRATCH = array("i", [99])


def _state() -> SchedulerState:
    capacity = KVCapacity(block_size=16, num_blocks=8, scratch_block=99)
    return SchedulerState(SchedulerConfig(policy="static"), capacity)


def _member(name: str, *, prompt: int, max_tokens: int, stop_ids: frozenset[int] = frozenset()) -> Member:
    """One whose prompt is computed and whose first token is there."""
    sequence = Sequence(request(name, prompt, stop_ids=stop_ids), number=0, arrival=0, max_tokens=max_tokens)
    sequence.table, sequence.phase, sequence.computed = array("i", [len(name)]), Phase.DECODE, prompt
    sequence.output.append(5)
    return Member(sequence, prompt)


def _plan(lockstep: Lockstep) -> StepPlan:
    return lockstep.plan(_state(), 0, None)


@given(st.lists(st.sampled_from(["live", "dead", "scratch"]), min_size=1, max_size=6), st.lists(st.integers(1, 3)))
def test_rows_that_move_on_are_rows_made_anew(kinds: list[str], jumps: list[int]) -> None:
    """After any steps and jumps the plan is the one that fresh rows of the same members would have."""
    members = [_member(f"r{row}", prompt=3 + row, max_tokens=50) for row in range(len(kinds))]
    for kind, member in zip(kinds, members, strict=True):
        if kind != "live":
            member.sequence.phase = Phase.ENDED
        if kind == "scratch":
            member.sequence.table = array("i")
    lockstep = Lockstep(members, SCRATCH)
    live = kinds.count("live")
    for number, times in enumerate(jumps):
        if live:
            lockstep.advance([10 * number + row for _ in range(times) for row in range(live)], times)

    assert _plan(lockstep) == _plan(Lockstep(members, SCRATCH))
    assert lockstep.steps_left == (49 - sum(jumps) if live else 0)


def test_who_reaches_its_length_is_named() -> None:
    """Answers of 2 and 4 tokens, one token there: the first is done after one step, the second after three."""
    members = [_member("a", prompt=4, max_tokens=2), _member("bb", prompt=4, max_tokens=4)]
    lockstep = Lockstep(members, SCRATCH)

    judged = lockstep.advance([7, 7], 1)

    assert judged == [(0, members[0].sequence)]


def test_a_stop_id_has_everybody_looked_at() -> None:
    """No token is a stop id: nobody; one is: all who live."""
    lockstep = Lockstep([_member(n, prompt=4, max_tokens=9, stop_ids=frozenset({8})) for n in ("a", "bb")], SCRATCH)

    assert lockstep.stoppable
    assert lockstep.advance([7, 7], 1) == []
    assert [row for row, _ in lockstep.advance([7, 8], 1)] == [0, 1]


def test_who_holds_no_blocks_runs_on_scratch() -> None:
    """Position 0, the padding's token, the scratch block; dead, as who has ended with its blocks."""
    members = [_member("a", prompt=4, max_tokens=9), _member("bb", prompt=4, max_tokens=9)]
    members[0].sequence.table = array("i")

    plan = _plan(Lockstep(members, SCRATCH))

    assert (plan.kinds, plan.starts, plan.tokens) == ((RowKind.DEAD, RowKind.DECODE), (0, 4), (0, 5))
    assert [list(table) for table in plan.tables] == [[99], [2]]
    assert (plan.token_counts.decode, plan.token_counts.dead) == (1, 1)
