"""A request while the scheduler holds it: how far it is, and which blocks it holds."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as SequenceOf
from enum import Enum

from chairlift.core.plan import BlockTable
from chairlift.core.reasons import Reason
from chairlift.core.request import FinishReason, Nanoseconds, Request, TokenId
from chairlift.core.runs import ContentKey, TokenRuns

SequenceOrder = tuple[int, Nanoseconds, int]


class Phase(Enum):
    """Where a sequence is. Preemption leads from the middle two back to the first."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    ENDED = "ended"
    """Nothing more is generated for it. In a closed batch its row may still run, and its result may not have left."""


class Sequence:
    """Mutable state of one request; only the scheduler's own modules touch it.

    Its tokens are the request's prompt and `output`, everything generated. The newest of them is not computed yet, so
    that a decoding sequence has computed == length - 1.
    """

    __slots__ = (
        "arrival",
        "computed",
        "finish_reason",
        "high_water",
        "keys",
        "last_position",
        "message",
        "number",
        "order",
        "output",
        "phase",
        "preemptions",
        "prompt_length",
        "published",
        "reason",
        "released",
        "request",
        "room",
        "stop_from",
        "table",
    )

    def __init__(self, request: Request, *, number: int, arrival: Nanoseconds, max_tokens: int) -> None:
        self.request = request
        self.number = number
        self.arrival = arrival
        self.order: SequenceOrder = (request.priority, arrival, number)
        """Total order of running sequences: the last is preempted first."""
        self.phase = Phase.WAITING
        self.prompt_length = len(request.prompt)
        self.output: list[TokenId] | TokenRuns = []
        """Generated tokens; as runs once a jump has brought equal ones."""
        self.computed = 0
        """Leading tokens whose keys and values are in the KV pool."""
        self.high_water = 0
        """Most that `computed` has been: anything below it is paid again after a preemption."""
        self.last_position = self.prompt_length + max_tokens - 1
        """`computed` at which the request has generated max_tokens and ends."""
        self.stop_from = self.prompt_length + max(1, request.min_tokens)
        """Length from which a stop id counts."""
        self.table: BlockTable = array("i")
        self.room = 0
        """Positions that the table holds."""
        self.published = 0
        """Leading blocks whose content has been made known."""
        self.keys: list[ContentKey] = []
        """Content keys of its leading full blocks, as far as somebody asked."""
        self.released = 0
        """Generated tokens that have left."""
        self.preemptions = 0
        self.reason: Reason | None = None
        """Of its last decision."""
        self.finish_reason: FinishReason | None = None
        self.message = ""

    def __repr__(self) -> str:
        return f"<{self.request.request_id}: {self.phase.value}, {self.computed} of {self.length} computed>"

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def length(self) -> int:
        """Known tokens: what a prefill, first or again, must compute."""
        return self.prompt_length + len(self.output)

    @property
    def most_tokens(self) -> int:
        """Prompt and max_tokens together: what a full reservation holds."""
        return self.last_position + 1

    @property
    def output_length(self) -> int:
        return len(self.output)

    def tokens(self, start: int, stop: int) -> SequenceOf[TokenId]:
        """Known tokens of positions start .. stop - 1."""
        prompt_length = self.prompt_length
        if stop <= prompt_length:
            return self.request.prompt[start:stop]
        output = self.output[max(0, start - prompt_length) : stop - prompt_length]
        if start >= prompt_length:
            return output
        prompt = self.request.prompt[start:]
        if isinstance(prompt, TokenRuns):
            both = TokenRuns(prompt)
            both.extend(output)
            return both
        return [*prompt, *output]

    def unreleased(self) -> SequenceOf[TokenId]:
        """Generated tokens that have not left yet."""
        return self.output[self.released :]
