"""Carries out the continuous policy: growth, preemption, chunks, and sequences that come and go at every step.

plan() changes the state in this order: blocks for the decodes (which may preempt), chunks of prompts begun, admissions.
Only apply() moves sequences on, so that an aborted plan leaves nothing half done: who was admitted stays admitted, and
the next plan builds on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from operator import attrgetter

from chairlift.core.batchers.decodes import Decodes
from chairlift.core.batchers.members import columns
from chairlift.core.batchers.rows import Rows, advance, end_of
from chairlift.core.plan import Finished, RowKind, StepEvents, StepOutcome, StepPlan, TokenCounts, Wait
from chairlift.core.policies.continuous import Continuous, Grant, Stop
from chairlift.core.reasons import Reason
from chairlift.core.request import FinishReason, Nanoseconds, TokenId
from chairlift.core.runs import Cycle, TokenRuns
from chairlift.core.sequence import Phase, Sequence
from chairlift.core.state import SchedulerState
from chairlift.core.steptime import StepTimePredictor

Ended = tuple[Sequence, FinishReason, str]
Ids = SequenceOf[str]
Tokens = SequenceOf[TokenId]

_NO_PROMPTS = Rows()
_ORDER = attrgetter("order")
_STAYS = frozenset({Reason.WAITING_FOR_SLOT, Reason.WAITING_FOR_BLOCKS, Reason.WAITING_FOR_BUDGET})
"""What a step without prompt tokens is stopped by until a running sequence ends: slots and budget are taken by the same
decodes again, and there are never more free blocks."""


class ContinuousBatcher:
    """Runs the open batch. Implements the policy's StepView over the live state."""

    def __init__(self, state: SchedulerState, predictor: StepTimePredictor) -> None:
        self.state = state
        self.policy = Continuous(state.config)
        self.predictor = predictor
        self.draining = False
        """Nobody new is admitted: a switch to a closed policy waits for what runs, and for who was preempted."""
        self.steps_since_prefill = state.config.prefill_interval
        self._decodes = Decodes(state.pool.block_size)
        self._prefilling: list[Sequence] = []
        self._preempted: list[Sequence] = []
        """In the step being planned, or since the last commit if plans were aborted."""
        self._preempted_now = False
        self._prompts = _NO_PROMPTS
        """Prompt rows of the plan in flight."""
        self._stopped_by: Reason | None = None

    # the policy's view

    @property
    def decoding(self) -> int:
        return len(self._decodes)

    @property
    def prefilling(self) -> tuple[Sequence, ...]:
        return tuple(self._prefilling)

    @property
    def preempted_in_this_step(self) -> bool:
        return self._preempted_now

    @property
    def free_blocks(self) -> int:
        return self.state.pool.free_blocks

    @property
    def watermark_blocks(self) -> int:
        return -int(-self.state.config.watermark * self.state.pool.num_blocks // 1)

    def head(self) -> Sequence | None:
        if self.draining:
            # A closed batch may form late or never: who has begun under this policy also ends under it.
            return next((sequence for sequence in self.state.queue if sequence.preemptions), None)
        return self.state.queue.head()

    def blocks_needed(self, sequence: Sequence) -> int:
        return self.state.blocks_needed(sequence, self.state.reservation(sequence))

    def tokens_to_compute(self, sequence: Sequence) -> int:
        if sequence.phase is Phase.WAITING:
            return sequence.length - len(self.state.matched(sequence)) * self.state.pool.block_size
        return sequence.length - sequence.computed

    def prompt_tokens_within(self, target: int) -> int | None:
        cost = self.predictor.cost()
        if cost is None:
            return None
        context = sum(sequence.computed + 1 for sequence in self._decodes.sequences)
        return cost.prompt_tokens_within(target, rows=len(self._decodes), context=context)

    # what the scheduler asks

    @property
    def running_count(self) -> int:
        return len(self._decodes) + len(self._prefilling)

    def running(self) -> list[Sequence]:
        return [*self._decodes.sequences, *self._prefilling]

    holders = running

    @property
    def drained(self) -> bool:
        """Whether nobody is left who was admitted under this policy."""
        return not self.running_count and self.head() is None

    def adopt(self, sequences: list[Sequence]) -> None:
        """Take over what ran under another policy or other settings, with the blocks it holds.

        Those beyond max_num_seqs, the last in the total order, go back to their places in the queue.
        """
        limit = self.state.config.max_num_seqs
        for sequence in sorted(sequences, key=_ORDER):
            if self.running_count == limit:
                self._send_back(sequence, {"running": len(sequences), "max_num_seqs": limit})
            elif sequence.phase is Phase.PREFILL:
                self._prefilling.append(sequence)
            else:
                self._decodes.join(sequence)

    def surrender(self) -> tuple[list[Sequence], StepEvents]:
        """Everything that runs, with its blocks, for the batcher to come."""
        if self.state.config.effective_release == "token":
            for sequence in self.state.sequences.values():
                sequence.released = sequence.output_length
        return self.running(), StepEvents(preempted=self._take_preempted())

    def plan(self, now: Nanoseconds) -> StepPlan | Wait:
        self._preempted_now = False
        self._stopped_by = None
        if (stuck := self._grow()) is not None:
            return Wait(None, Reason.STALLED, stuck)
        prompts = _NO_PROMPTS
        if self._prefilling or self.head() is not None:
            prompts = self._grant()
        if self.draining:
            self._hold_back()
        self._prompts = prompts
        if self._decodes or prompts:
            return self._freeze(prompts, now)
        if not self.state.queue:
            return Wait(None, Reason.QUEUE_EMPTY)
        return Wait(None, Reason.STALLED, self._stall())

    def apply(self, plan: StepPlan, outcome: StepOutcome, times: int) -> StepEvents:
        singles = plan.single_token_rows
        preempted = self._take_preempted()
        if outcome.failures:
            ended = self._advance_rows(plan, outcome, range(len(plan)), iter(outcome.tokens))
            self._decodes.advanced_one_by_one()
        else:
            ended = self._advance_decodes(outcome, times)
            if self._prompts:
                ended += self._advance_rows(plan, outcome, range(singles, len(plan)), iter(outcome.tokens[singles:]))
        self.steps_since_prefill = 1 if self._prompts else self.steps_since_prefill + times
        ids, tokens = self._released(plan, outcome, times, ended)
        finished = tuple(self._finish(sequence, reason, message) for sequence, reason, message in ended)
        for sequence in self._prompts.sequences:
            if sequence.phase is not Phase.PREFILL:
                self._prefilling.remove(sequence)
                if sequence.phase is Phase.DECODE:
                    self._decodes.join(sequence)
        return StepEvents(ids, tokens, finished, preempted)

    def cancel(self, sequence: Sequence) -> StepEvents:
        if sequence.phase is Phase.PREFILL:
            self._prefilling.remove(sequence)
        return StepEvents(finished=(self._finish(sequence, FinishReason.CANCELLED, ""),))

    def horizon(self) -> int:
        decodes = self._decodes
        if (
            self._prompts
            or self._prefilling
            or decodes.stop_ids
            or (self.head() is not None and not self._head_stays())
        ):
            return 1
        # The most steps that end nobody before the last and whose growth fits.
        return decodes.steps_within(self.free_blocks, max(1, decodes.steps_to_nearest_length()))

    def _head_stays(self) -> bool:
        """Whether the head of the queue waits, for the same reason, until a running sequence ends."""
        if self._preempted_now:
            return False
        if self.state.config.target_itl is not None:
            return self._stopped_by is Reason.WAITING_FOR_SLOT  # what else is looked at depends on predicted times
        return self._stopped_by in _STAYS

    # growth and preemption

    def _grow(self) -> str | None:
        """A block for every decode at the end of its table.

        Where there is none, the last in the total order gives up its own. Returns the cause when a sequence that is
        alone is refused: the door has checked that the pool can hold it, so that recomputing it would lead here again.
        """
        short = self._decodes.due_for_growth()
        pool = self.state.pool
        if short and not pool.allocate_each([sequence.table for sequence in short]):
            short.sort(key=_ORDER)
            for sequence in short:
                # One that was preempted for another before its own turn has nothing to grow.
                while sequence.phase is Phase.DECODE and not pool.allocate(sequence.table, 1):
                    if self.running_count == 1:
                        self._decodes.put_off(sequence)
                        return (
                            f"{sequence.request_id} runs alone and gets no KV block for its next token: it holds "
                            f"{len(sequence.table)}, and the pool offers {pool.free_blocks} of {pool.num_blocks}."
                        )
                    self._preempt(max(self.running(), key=_ORDER), sequence)
            short = [sequence for sequence in short if sequence.phase is Phase.DECODE]
        self._decodes.grown(short)
        return None

    def _preempt(self, victim: Sequence, beneficiary: Sequence) -> None:
        if self.state.config.effective_release == "token":
            victim.released = victim.output_length
        numbers = {"free_blocks": self.free_blocks, "held": len(victim.table), "computed": victim.computed}
        if victim.phase is Phase.DECODE:
            self._decodes.leave(victim)
        else:
            self._prefilling.remove(victim)
        self._send_back(victim, numbers | {"for_number": beneficiary.number})
        self._preempted_now = True

    def _take_preempted(self) -> tuple[str, ...]:
        """Whom to tell of; who was cancelled since has left."""
        taken = tuple(sequence.request_id for sequence in self._preempted if sequence.phase is not Phase.ENDED)
        self._preempted.clear()
        return taken

    def _send_back(self, sequence: Sequence, numbers: dict[str, int]) -> None:
        self.state.preempt(sequence)
        self.state.decide(sequence, Reason.PREEMPTED, numbers)
        self._preempted.append(sequence)

    # prompts

    def _grant(self) -> Rows:
        """Carry out the policy's grants one by one; each sees the pool as the last one left it."""
        rows = Rows()
        for choice in self.policy.choose(self):
            if isinstance(choice, Stop):
                self._stopped_by = choice.reason
                head = self.head()
                if head is not None:
                    self.state.decide(head, choice.reason, {"needed": choice.needed, "available": choice.available})
                break
            sequence = choice.sequence
            if sequence.phase is Phase.WAITING and not self._admit(sequence):
                break
            self._note_chunk(choice)
            rows.add_prompt(sequence, sequence.computed, choice.tokens, sequence.length)
        return rows

    def _admit(self, sequence: Sequence) -> bool:
        free, running = self.free_blocks, self.running_count
        if not self.state.admit(sequence, self.state.reservation(sequence)):
            return False
        reason = Reason.RESUMED if sequence.preemptions else Reason.ADMITTED
        numbers = {"blocks": len(sequence.table), "free_blocks": free, "running": running}
        self.state.decide(sequence, reason, numbers | {"cached_tokens": sequence.computed})
        self._prefilling.append(sequence)
        return True

    def _note_chunk(self, grant: Grant) -> None:
        left = grant.sequence.length - grant.sequence.computed
        if grant.tokens < left:
            self.state.decide(grant.sequence, Reason.CHUNKED, {"tokens": grant.tokens, "of": left})

    def _hold_back(self) -> None:
        """Say of the next in the queue that a switch keeps it there."""
        first = next((sequence for sequence in self.state.queue if not sequence.preemptions), None)
        if first is not None:
            self.state.decide(first, Reason.WAITING_FOR_SWITCH, {"running": self.running_count})

    def _stall(self) -> str:
        head = self.state.queue.head()
        if head is None:
            return ""
        return (
            f"{len(self.state.queue)} requests wait and none runs, yet {head.request_id} cannot be admitted: it needs "
            f"{self.blocks_needed(head)} KV blocks; the pool offers {self.free_blocks} of {self.state.pool.num_blocks}."
        )

    # columns

    def _freeze(self, prompts: Rows, now: Nanoseconds) -> StepPlan:
        decodes = self._decodes
        singles = len(decodes)
        state = self.state
        return StepPlan(
            step=state.step,
            now=now,
            policy="continuous",
            request_ids=(*decodes.ids, *prompts.ids),
            kinds=(RowKind.DECODE,) * singles + tuple(prompts.kinds),
            starts=(*[sequence.computed for sequence in decodes.sequences], *prompts.starts),
            counts=(1,) * singles + tuple(prompts.counts),
            paddings=(0,) * (singles + len(prompts)),
            samples=(True,) * singles + tuple(prompts.samples),
            tokens=self._joined(prompts) if prompts else tuple(decodes.newest),
            tables=(*decodes.tables, *prompts.tables),
            single_token_rows=singles,
            token_counts=TokenCounts(prompts.prefill, singles + prompts.decode, prompts.recompute),
            shares=tuple(prompts.shares),
            decisions=state.take_decisions(),
        )

    def _joined(self, prompts: Rows) -> Tokens:
        if isinstance(prompts.tokens, TokenRuns):
            tokens = TokenRuns(self._decodes.newest)
            tokens.extend(prompts.tokens)
            return tokens
        return (*self._decodes.newest, *prompts.tokens)

    # moving on

    def _advance_decodes(self, outcome: StepOutcome, times: int) -> list[Ended]:
        """The steady state: every decode got its token. Returns who has ended by it."""
        decodes, tokens, stops = self._decodes, outcome.tokens, outcome.stops
        if times > 1:
            self.state.pool.allocate_each([sequence.table for sequence in decodes.growth_within(times)])
        done = decodes.advance(tokens, times)
        if stops:
            rows = enumerate(decodes.sequences)
            return [(one, reason, "") for row, one in rows if (reason := stops.get(row) or end_of(one))]
        if decodes.stopped_by(tokens):
            done = decodes.sequences
        return [(sequence, reason, "") for sequence in done if (reason := end_of(sequence))]

    def _advance_rows(
        self, plan: StepPlan, outcome: StepOutcome, rows: range, tokens: Iterator[TokenId]
    ) -> list[Ended]:
        """Row by row: prompts, and every row of a step in which something went wrong or was stopped by the engine."""
        ended: list[Ended] = []
        singles = plan.single_token_rows
        for row in rows:
            sequence = self._decodes.sequences[row] if row < singles else self._prompts.sequences[row - singles]
            token = next(tokens) if plan.samples[row] else None
            if row in outcome.failures:
                ended.append((sequence, FinishReason.ERROR, outcome.failures[row]))
                continue
            advance(sequence, token, plan.starts[row] + plan.counts[row])
            if row >= singles:
                self.state.publish(sequence)
            if token is None:
                continue
            if reason := outcome.stops.get(row) or end_of(sequence):
                ended.append((sequence, reason, ""))
            else:
                self.state.decide(sequence, Reason.DECODING)
        return ended

    def _finish(self, sequence: Sequence, reason: FinishReason, message: str) -> Finished:
        if sequence.phase is Phase.DECODE and sequence not in self._prefilling:
            self._decodes.leave(sequence)
        self.state.end(sequence, reason, message)
        self.state.free(sequence)
        return self.state.leave(sequence)

    def _released(self, plan: StepPlan, outcome: StepOutcome, times: int, ended: list[Ended]) -> tuple[Ids, Tokens]:
        """Columns of the tokens that leave now: all of this step's, or whole answers that have ended."""
        if self.state.config.effective_release != "token":
            return columns([(sequence.request_id, sequence.unreleased()) for sequence, _, _ in ended])
        if not outcome.failures:
            singles = plan.single_token_rows
            sampled = [
                name
                for name, samples in zip(plan.request_ids[singles:], plan.samples[singles:], strict=True)
                if samples
            ]
            names = [*plan.request_ids[:singles], *sampled]
            return names if times == 1 else Cycle(names, times), outcome.tokens
        kept = [(k, row) for k, row in enumerate(plan.sampled_rows) if row not in outcome.failures]
        return [plan.request_ids[row] for _, row in kept], [outcome.tokens[k] for k, _ in kept]
