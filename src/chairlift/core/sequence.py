"""A request while the scheduler holds it: how far it is, and which blocks it holds."""

from __future__ import annotations

from array import array
from enum import Enum

from chairlift.core.blocks import ContentKey
from chairlift.core.plan import BlockTable
from chairlift.core.reasons import Reason
from chairlift.core.request import FinishReason, Nanoseconds, Request, TokenId

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

    `tokens` is the prompt and everything generated. The newest generated token is not computed yet, so that a decoding
    sequence has computed == len(tokens) - 1.
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
        "phase",
        "preemptions",
        "published",
        "reason",
        "released",
        "request",
        "room",
        "stop_from",
        "table",
        "tokens",
    )

    def __init__(self, request: Request, *, number: int, arrival: Nanoseconds, max_tokens: int) -> None:
        self.request = request
        self.number = number
        self.arrival = arrival
        self.order: SequenceOrder = (request.priority, arrival, number)
        """Total order of running sequences: the last is preempted first."""
        self.phase = Phase.WAITING
        self.tokens: list[TokenId] = []
        """Empty until first admitted, so that a long queue of virtual prompts costs nothing."""
        self.computed = 0
        """Leading tokens whose keys and values are in the KV pool."""
        self.high_water = 0
        """Most that `computed` has been: anything below it is paid again after a preemption."""
        self.last_position = len(request.prompt) + max_tokens - 1
        """`computed` at which the request has generated max_tokens and ends."""
        self.stop_from = len(request.prompt) + max(1, request.min_tokens)
        """len(tokens) from which a stop id counts."""
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
    def prompt_length(self) -> int:
        return len(self.request.prompt)

    @property
    def length(self) -> int:
        """Known tokens: what a prefill, first or again, must compute."""
        return len(self.tokens) or len(self.request.prompt)

    @property
    def most_tokens(self) -> int:
        """Prompt and max_tokens together: what a full reservation holds."""
        return self.last_position + 1

    @property
    def output_length(self) -> int:
        return max(0, len(self.tokens) - len(self.request.prompt))

    def unreleased(self) -> list[TokenId]:
        """Generated tokens that have not left yet."""
        return self.tokens[self.prompt_length + self.released :]
