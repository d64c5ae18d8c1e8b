"""One request of a schedule: when it starts, how its prompt is made, what is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.core.request import Nanoseconds


@dataclass(frozen=True, slots=True)
class At:
    """Due at a moment, whatever the target does."""

    due: Nanoseconds
    """From the load's start."""


@dataclass(frozen=True, slots=True)
class After:
    """Due when another request has ended and its user has thought."""

    index: int
    """The other request's."""
    think: Nanoseconds = 0
    """From its end."""
    not_before: Nanoseconds = 0
    """From the load's start; the later of the two counts."""


@dataclass(frozen=True, slots=True)
class WhenFree:
    """Due when one of the load's users is free and has thought."""

    think: Nanoseconds = 0
    """From the end of what the user did last."""
    not_before: Nanoseconds = 0
    """From the load's start; the later of the two counts."""


Start = At | After | WhenFree


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a prompt. Equal streams and numbers give equal tokens, a longer stretch beginning as a shorter."""

    stream: str
    """own (this request's), prefix (a group's; prefix/NAME for a class's), block (of a trace), answer (of a turn)."""
    number: int
    """Of the request, group or block."""
    tokens: int


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """What is to be sent, with the recipe for its prompt instead of the prompt."""

    index: int
    """From 0, in the order in which a load lists its requests."""
    start: Start
    recipe: tuple[Segment, ...]
    """The prompt, from its first token to its last."""
    prompt_tokens: int
    """Tokens of the prompt, the sum over the recipe."""
    output_tokens: int
    """Tokens of the answer."""
    max_tokens: int
    """The bound that is sent; at least output_tokens."""
    ignore_eos: bool = True
    priority: int = 0
    """Lower is more urgent."""
    deadline: Nanoseconds | None = None
    """The first token is wanted this long after the request was due."""
    kind: str = ""
    """Name of its request class."""
    session: int | None = None
    """Number of its session."""
    turn: int = 0
    """0 for the first of a session."""
