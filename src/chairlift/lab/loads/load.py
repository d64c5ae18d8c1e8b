"""What a load is made of. Every field explains itself; validation names the key and the way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from chairlift.core.errors import ConfigError
from chairlift.core.request import Nanoseconds
from chairlift.lab.loads.arrivals import Arrivals, Burst, ClosedLoop, TraceFormat, TraceReplay
from chairlift.lab.loads.delays import Delay, FixedDelay
from chairlift.lab.loads.lengths import LONGEST, FixedLength, Lengths
from chairlift.lab.loads.tables import write_table


@dataclass(frozen=True, slots=True)
class Prefix:
    """Requests of a group begin with the same tokens, as those with one system prompt do."""

    tokens: int
    """Tokens that a group shares. They come before the prompt and count in addition to its length."""
    groups: int = 1
    """How many different prefixes there are."""
    share: float = 1.0
    """Share of the requests (or sessions) that belong to a group; the others have no prefix."""
    skew: float = 0.0
    """How unevenly groups are used: group k (from 1) has weight k ** -skew. 0: all alike; 1: Zipf's law."""

    def __post_init__(self) -> None:
        for name in ("tokens", "groups"):
            if (value := getattr(self, name)) < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1.")
            if value > LONGEST:
                raise ConfigError(f"{name} is {value}; it is at most {LONGEST:,}.")
        if not 0 < self.share <= 1:
            raise ConfigError(f"share is {self.share:g}; it is above 0 and at most 1.")
        if self.skew < 0:
            raise ConfigError(f"skew is {self.skew:g}; it must not be negative.")


@dataclass(frozen=True, slots=True)
class Sessions:
    """Conversations: arrivals start sessions, and each turn's prompt is the last one's prompt and answer and more."""

    turns: Lengths = FixedLength(4)  # noqa: RUF009 - immutable
    """Turns of a session. `prompt` is what the user adds in each of them."""
    think: Delay = FixedDelay()  # noqa: RUF009 - immutable
    """From an answer's end to the next turn."""
    max_context: int | None = None
    """End a session before the turn whose prompt and answer bound would be longer than this together."""

    def __post_init__(self) -> None:
        if self.max_context is not None and self.max_context < 2:
            raise ConfigError(f"max_context is {self.max_context}; a prompt and an answer need at least 2 tokens.")


@dataclass(frozen=True, slots=True)
class TraceLengths:
    """Prompt and output length together from rows of a trace, so that they stay related."""

    KIND: ClassVar[str] = "trace"

    file: str
    """The trace; a relative path starts at the load's file."""
    format: TraceFormat = "auto"
    """Who wrote it. auto looks at the column names."""
    draw: Literal["random", "in_order"] = "random"
    """random: each request draws a row. in_order: row after row, from the first again after the last."""


@dataclass(frozen=True, slots=True)
class TranscriptLengths:
    """Prompt and output length from recorded chats; their text is counted with the target's tokenizer, not sent."""

    KIND: ClassVar[str] = "transcripts"

    file: str
    """JSON or JSONL of conversations, each with `messages` (role, content) or `conversations` (from, value)."""
    turns: Literal["first", "all"] = "first"
    """first: a request is a chat's first exchange. all: each chat is a session of all its exchanges."""
    draw: Literal["random", "in_order"] = "random"
    """random: each request draws a chat. in_order: chat after chat, from the first again after the last."""


@dataclass(frozen=True, slots=True)
class RequestClass:
    """A kind of request in a mixture, such as interactive beside batch. What is absent is as in the load."""

    share: float
    """Weight against the other classes."""
    prompt: Lengths | None = None
    """Its own prompt lengths."""
    output: Lengths | None = None
    """Its own output lengths."""
    prefix: Prefix | None = None
    """Its own shared prefixes."""
    priority: int | None = None
    """Its own priority."""
    deadline: Nanoseconds | None = None
    """Its own deadline."""
    max_tokens: int | None = None
    """Its own bound."""
    ignore_eos: bool | None = None
    """Whether its answers go on past the model's end-of-sequence token."""

    def __post_init__(self) -> None:
        if self.share <= 0:
            raise ConfigError(f"share is {self.share:g}; it must be positive.")
        _check_request(self.deadline, self.max_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests of certain lengths at certain times: everything that is asked of a target, and nothing about it."""

    arrivals: Arrivals
    """When requests start."""

    name: str = ""
    """For people; two loads that differ in it alone are the same."""
    seed: int = 0
    """The same seed gives byte-identical loads."""
    count: int | None = None
    """Most requests."""
    duration: Nanoseconds | None = None
    """Nothing starts from this time on."""
    time_scale: float = 1.0
    """All times (arrivals, thinking) are multiplied by this: 0.5 plays a load twice as fast."""
    warmup_requests: int = 0
    """The first so many requests are sent but not counted."""
    warmup_time: Nanoseconds = 0
    """Requests due before this time are sent but not counted."""
    nonce: int = 4
    """Tokens at the front of each prompt that differ between runs and between prompts that share nothing, so that no
    cache helps by accident. They are part of the prompt's length. 0: none."""

    prompt: Lengths | None = None
    """Tokens of a prompt; with `prefix` those after it, with `sessions` those the user adds in a turn."""
    output: Lengths | None = None
    """Tokens of an answer."""
    lengths: TraceLengths | TranscriptLengths | None = None
    """Both together from a file, instead of `prompt` and `output`."""
    prefix: Prefix | None = None
    """Shared prefixes."""
    sessions: Sessions | None = None
    """Multi-turn conversations."""

    max_tokens: int | None = None
    """The bound sent with each request, where it is more than the answer's length. Absent: the answer's length. With a
    larger bound answers end where the target ends them; only a simulated one ends them at `output`."""
    ignore_eos: bool = True
    """Answers go on past the model's end-of-sequence token, up to their bound."""
    priority: int = 0
    """Lower is more urgent."""
    deadline: Nanoseconds | None = None
    """Each first token is wanted this long after the request was due."""
    classes: Mapping[str, RequestClass] = field(default_factory=dict)
    """A mixture of kinds of request, by name."""

    folder: Path = field(default=Path(), compare=False)
    """Where relative paths start."""

    def __post_init__(self) -> None:
        """Raises ConfigError on the first key that cannot be."""
        _check_request(self.deadline, self.max_tokens)
        _check_limits(self)
        _check_lengths(self)

    @property
    def bounded(self) -> bool:
        """Whether the load ends without the target's doing."""
        return self.count is not None or not isinstance(self.arrivals, ClosedLoop)

    def is_warmup(self, index: int, due: Nanoseconds) -> bool:
        """Whether request `index`, due at a time from the load's start, is sent without being counted."""
        return index < self.warmup_requests or due < self.warmup_time

    def to_table(self) -> dict[str, Any]:
        """What `read_table` reads back to an equal load; defaults are left out."""
        return write_table(self)


def _check_request(deadline: Nanoseconds | None, max_tokens: int | None) -> None:
    if deadline is not None and deadline < 1:
        raise ConfigError(f"deadline is {deadline} ns; it must be positive, or absent.")
    if max_tokens is not None and max_tokens < 1:
        raise ConfigError(f"max_tokens is {max_tokens}; it must be at least 1, or absent.")
    if max_tokens is not None and max_tokens > LONGEST:
        raise ConfigError(f"max_tokens is {max_tokens}; it must be at most {LONGEST:,}.")


def _check_limits(load: Load) -> None:
    if "" in load.classes:
        raise ConfigError("classes has one without a name; give it one, such as [classes.chat].")
    for name in ("count", "duration"):
        if (value := getattr(load, name)) is not None and value < 1:
            raise ConfigError(f"{name} is {value}; it must be positive, or absent.")
    for name in ("warmup_requests", "warmup_time", "nonce"):
        if (value := getattr(load, name)) < 0:
            raise ConfigError(f"{name} is {value}; it must not be negative.")
    if load.count is not None and load.warmup_requests >= load.count:
        raise ConfigError(
            f"warmup_requests is {load.warmup_requests} and count {load.count}: no request would be counted."
        )
    if not 1e-6 <= load.time_scale <= 1e6:
        raise ConfigError(f"time_scale is {load.time_scale:g}; it is between 1e-6 and 1e6: 0.5 is twice as fast.")
    finite = isinstance(load.arrivals, TraceReplay) or (
        isinstance(load.arrivals, Burst) and load.arrivals.every is None
    )
    if load.count is None and load.duration is None and not finite:
        raise ConfigError("count is missing: a load needs an end, count (requests) or duration (such as 60s).")


def _check_lengths(load: Load) -> None:
    if isinstance(load.arrivals, TraceReplay):
        for name in ("sessions", "lengths"):
            if getattr(load, name) is not None:
                raise ConfigError(f"{name} does not go with arrivals.kind = trace; the trace has its own.")
        return
    for name in ("prompt", "output"):
        given = getattr(load, name) is not None
        if given and load.lengths is not None:
            raise ConfigError(f"{name} and lengths both say how long requests are; leave one out.")
        without = [key for key, kind in load.classes.items() if getattr(kind, name) is None]
        if not given and load.lengths is None and (without or not load.classes):
            who = f"the class {without[0]} has none of its own, and " if without else ""
            raise ConfigError(f"{name} is missing: {who}a load says how long it is, such as {name} = 128.")
    whole = isinstance(load.lengths, TranscriptLengths) and load.lengths.turns == "all"
    if whole and load.sessions is not None and load.sessions.turns != Sessions().turns:
        raise ConfigError("sessions.turns does not go with lengths.turns = all; the chats have their own.")
