"""Where lengths come from: distributions, rows of a trace, or chats. One interface for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from chairlift.lab.loads.draws import Draws
from chairlift.lab.loads.lengths import Lengths
from chairlift.lab.loads.load import Load, TraceLengths, TranscriptLengths
from chairlift.lab.loads.traces import Trace
from chairlift.lab.loads.transcripts import Exchange, Transcripts


class Exchanges(Protocol):
    """Lengths of request after request."""

    def turns(self, session: int) -> int:
        """How many requests a session has."""

    def exchange(self, session: int, turn: int, index: int, kind: str) -> Exchange:
        """Lengths of request `index`, the given turn (from 0) of a session, of a class."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """From the load's distributions; a class's own come first."""

    load: Load
    draws: Draws

    def turns(self, session: int) -> int:
        if self.load.sessions is None:
            return 1
        return self.load.sessions.turns.length(self.draws.uniform("turns", session), session)

    def exchange(self, session: int, turn: int, index: int, kind: str) -> Exchange:  # noqa: ARG002 - all alike
        return self.replaced(Exchange(0, 0), index, kind)

    def replaced(self, exchange: Exchange, index: int, kind: str) -> Exchange:
        """The exchange, with each length drawn instead for which the load, or the class, has a distribution."""
        return Exchange(
            self._length("prompt", index, kind, exchange.prompt_tokens),
            self._length("output", index, kind, exchange.output_tokens),
        )

    def _length(self, which: str, index: int, kind: str, otherwise: int) -> int:
        lengths: Lengths | None = getattr(self.load.classes.get(kind), which, None) or getattr(self.load, which)
        return lengths.length(self.draws.uniform(which, index), index) if lengths is not None else otherwise


@dataclass(frozen=True, slots=True)
class FromTrace:
    """Rows of a trace; a class's own distributions come first."""

    drawn: Drawn
    source: TraceLengths
    trace: Trace

    def turns(self, session: int) -> int:
        return self.drawn.turns(session)

    def exchange(self, session: int, turn: int, index: int, kind: str) -> Exchange:  # noqa: ARG002 - all alike
        row = _pick(self.drawn.draws, self.source.draw, index, len(self.trace))
        recorded = Exchange(self.trace.prompt_tokens[row], self.trace.output_tokens[row])
        return self.drawn.replaced(recorded, index, kind)


@dataclass(frozen=True, slots=True)
class FromTranscripts:
    """First exchanges of chats, or whole chats as sessions; a class's own distributions come first."""

    drawn: Drawn
    source: TranscriptLengths
    transcripts: Transcripts

    def turns(self, session: int) -> int:
        return len(self._chat(session)) if self.source.turns == "all" else self.drawn.turns(session)

    def exchange(self, session: int, turn: int, index: int, kind: str) -> Exchange:
        recorded = self._chat(session)[turn] if self.source.turns == "all" else self._chat(index)[0]
        return self.drawn.replaced(recorded, index, kind)

    def _chat(self, number: int) -> tuple[Exchange, ...]:
        chats = self.transcripts.chats
        return chats[_pick(self.drawn.draws, self.source.draw, number, len(chats))]


def _pick(draws: Draws, how: str, number: int, count: int) -> int:
    return number % count if how == "in_order" else int(draws.uniform("rows", number) * count)
