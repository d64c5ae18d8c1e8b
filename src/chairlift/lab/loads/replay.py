"""A recorded trace as a load: its times, its lengths, and what its prompts share."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.arrivals import TraceReplay
from chairlift.lab.loads.exchanges import Drawn
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.making import Maker
from chairlift.lab.loads.request import After, At, ScheduledRequest, Segment, Start
from chairlift.lab.loads.traces import Trace, find_ticks, spread
from chairlift.lab.loads.traces.trace import NONE
from chairlift.lab.loads.transcripts import Exchange


class Replay:
    """The requests of a trace, in its order.

    Raises:
        ConfigError: the load asks for something that contradicts the trace.
    """

    def __init__(self, load: Load, arrivals: TraceReplay, trace: Trace, maker: Maker) -> None:
        self._load = load
        self._arrivals = arrivals
        self._trace = trace
        self._maker = maker
        self._drawn = Drawn(load, maker.draws)
        self._ticks = find_ticks(trace.times)
        spreads = self._ticks is not None and arrivals.spread
        self._times = spread(trace.times, self._ticks, maker.draws) if self._ticks and spreads else trace.times
        self._blocks = trace.blocks if load.prompt is None else None
        if load.prefix is not None and self._blocks is not None:
            raise ConfigError(f"prefix does not go with {trace.name}: the trace itself says what its prompts share.")
        unknown = sorted({kind for kind in trace.kinds.values() if kind not in load.classes})
        if unknown:
            raise ConfigError(
                f"{trace.name} has requests of the class {unknown[0]!r}, which the load does not know: add a table "
                f"[classes.{unknown[0]}] with share = 1, or leave the column out."
            )
        if arrivals.start > trace.times[-1]:
            last = trace.times[-1] / 1e9
            raise ConfigError(f"arrivals.start is {arrivals.start / 1e9:g}s, but {trace.name} ends after {last:g}s.")

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noticed about the trace."""
        trace = self._trace
        notes = [f"{trace.name}: {trace.format} trace, {len(trace):,} requests"]
        notes += [f"{trace.name}: {count:,} rows left out ({reason})" for reason, count in trace.left_out.items()]
        if self._ticks is not None:
            fate = "spread inside their tick" if self._arrivals.spread else "left as they are: each tick is a burst"
            notes.append(f"{trace.name}: {self._ticks}; {fate}")
        return tuple(notes)

    def __iter__(self) -> Iterator[ScheduledRequest]:
        scale, begin = self._load.time_scale, self._arrivals.start
        parents = frozenset(self._trace.parents) if self._arrivals.follow else frozenset[int]()
        sent: dict[int, ScheduledRequest] = {}  # by row: those that a later turn follows
        index = 0
        for row, time in enumerate(self._times):
            if time < begin:
                continue
            due = round((time - begin) * scale)
            if self._load.duration is not None and due >= self._load.duration:
                return
            before = sent.get(self._trace.parents[row])
            start = At(due) if before is None else After(before.index, not_before=due)
            request = self._request(row, index, start, before)
            if row in parents:
                sent[row] = request
            yield request
            index += 1

    def _request(self, row: int, index: int, start: Start, before: ScheduledRequest | None) -> ScheduledRequest:
        trace = self._trace
        kind = trace.kinds.get(row) or self._maker.kind(index)
        recorded = Exchange(trace.prompt_tokens[row], trace.output_tokens[row])
        exchange = self._drawn.replaced(recorded, index, kind)
        session = trace.sessions[row] if trace.sessions[row] != NONE else None
        recipe = self._recipe(row, index, exchange.prompt_tokens, kind, before)
        request = self._maker.request(
            index, start, recipe, exchange.output_tokens, kind, session=session, turn=trace.turns[row]
        )
        if row not in trace.priorities and row not in trace.deadlines:
            return request
        return replace(
            request,
            priority=trace.priorities.get(row, request.priority),
            deadline=trace.deadlines.get(row, request.deadline),
        )

    def _recipe(
        self, row: int, index: int, tokens: int, kind: str, before: ScheduledRequest | None
    ) -> tuple[Segment, ...]:
        if self._blocks is not None and (kind not in self._load.classes or self._load.classes[kind].prompt is None):
            return _of_blocks(self._blocks.of(row), self._blocks.tokens, index, tokens)
        if before is not None and tokens > before.prompt_tokens + before.output_tokens:
            rest = tokens - before.prompt_tokens - before.output_tokens
            return (*before.recipe, Segment("answer", before.index, before.output_tokens), Segment("own", index, rest))
        return (*self._maker.prefix(kind, index), Segment("own", index, tokens))


def _of_blocks(names: array[int], size: int, index: int, tokens: int) -> tuple[Segment, ...]:
    """Blocks as far as the prompt goes; what they don't cover is the request's own."""
    recipe = []
    for name in names:
        if tokens <= 0:
            break
        recipe.append(Segment("block", name, min(size, tokens)))
        tokens -= size
    if tokens > 0:
        recipe.append(Segment("own", index, tokens))
    return tuple(recipe)
