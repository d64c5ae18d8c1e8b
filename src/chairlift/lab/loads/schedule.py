"""A load made into requests, one after the other and as often as wanted; nothing is kept.

Which request follows is fixed by the load and its seed alone: not by the target, the order of asking, or the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, assert_never

from chairlift.core.errors import ConfigError
from chairlift.core.request import Nanoseconds
from chairlift.lab.loads.arrivals import ClosedLoop, TraceReplay
from chairlift.lab.loads.delays import Delay, FixedDelay
from chairlift.lab.loads.draws import Draws
from chairlift.lab.loads.exchanges import Drawn, Exchanges, FromTrace, FromTranscripts
from chairlift.lab.loads.load import Load, TraceLengths, TranscriptLengths
from chairlift.lab.loads.making import Maker
from chairlift.lab.loads.replay import Replay
from chairlift.lab.loads.request import After, At, ScheduledRequest, Segment, Start, WhenFree
from chairlift.lab.loads.traces import read_trace
from chairlift.lab.loads.transcripts import CountTokens, read_transcripts

_EMPTY_SESSIONS: Final = 1000
"""So many sessions in a row without a single turn that fits, and the load is called impossible."""


class Schedule:
    """The requests of a load. Iterating again gives the same again.

    Attributes:
        load: what it was made from.
        notes: what a reader should know about the files it was made from.
        files: sha256 by name of every file that went into it.
        extends: whether later turns extend the prompts and answers before them.
    """

    def __init__(self, load: Load, count_tokens: CountTokens | None = None) -> None:
        """Read the load's files.

        Args:
            load: what is wanted.
            count_tokens: the target's tokenizer; lengths from transcripts need it.

        Raises:
            ConfigError: a file cannot be used, or transcripts are to be counted without a tokenizer.
        """
        self.load = load
        self.notes: tuple[str, ...] = ()
        self.files: Mapping[str, str] = {}
        whole = isinstance(load.lengths, TranscriptLengths) and load.lengths.turns == "all"
        self.extends = load.sessions is not None or whole
        self._draws = Draws(load.seed)
        self._maker = Maker(load, self._draws)
        self._replay: Replay | None = None
        self._exchanges: Exchanges = Drawn(load, self._draws)
        if isinstance(load.arrivals, TraceReplay):
            trace = read_trace(_path(load, load.arrivals.file), load.arrivals.format)
            self._replay = Replay(load, load.arrivals, trace, self._maker)
            self.extends = load.arrivals.follow
            self.notes, self.files = self._replay.notes, {load.arrivals.file: trace.sha256}
        elif load.lengths is not None:
            self._read_lengths(load.lengths, Drawn(load, self._draws), count_tokens)

    def __iter__(self) -> Iterator[ScheduledRequest]:
        requests = self._synthetic() if self._replay is None else iter(self._replay)
        return itertools.islice(requests, self.load.count)

    def _read_lengths(
        self, source: TraceLengths | TranscriptLengths, drawn: Drawn, count_tokens: CountTokens | None
    ) -> None:
        path = _path(self.load, source.file)
        match source:
            case TraceLengths():
                trace = read_trace(path, source.format)
                self._exchanges = FromTrace(drawn, source, trace)
                self.notes = tuple(
                    f"{path.name}: {count:,} rows left out ({why})" for why, count in trace.left_out.items()
                )
                self.files = {source.file: trace.sha256}
            case TranscriptLengths():
                if count_tokens is None:
                    raise ConfigError(
                        f"lengths.kind = transcripts: how long the chats of {source.file} are is for the target's "
                        "tokenizer to say, and it is unknown: name a tokenizer, or take lengths from a trace."
                    )
                transcripts = read_transcripts(path, count_tokens)
                self._exchanges = FromTranscripts(drawn, source, transcripts)
                self.notes = (f"{path.name}: {len(transcripts.chats):,} chats, {transcripts.left_out:,} left out",)
                self.files = {source.file: transcripts.sha256}
            case _:
                assert_never(source)

    def _synthetic(self) -> Iterator[ScheduledRequest]:
        index = empty = 0
        for number, start in enumerate(self._starts()):
            before = index
            for request in self._session(number, index, start):
                yield request
                index += 1
            empty = 0 if index > before else empty + 1
            if empty == _EMPTY_SESSIONS and self.load.sessions is not None:
                raise ConfigError(
                    f"sessions.max_context is {self.load.sessions.max_context}: in {empty:,} sessions no first turn "
                    "fits. Raise it, or shorten prompt, prefix, output or max_tokens."
                )

    def _session(self, number: int, index: int, start: Start) -> Iterator[ScheduledRequest]:
        """A session's turns; a single request is a session of one turn, without a number."""
        sessions, exchanges, maker = self.load.sessions, self._exchanges, self._maker
        turns = exchanges.turns(number)
        think: Delay = sessions.think if sessions else FixedDelay()
        limit = sessions.max_context if sessions else None
        several = sessions is not None or turns > 1
        kind = maker.kind(number)
        history = maker.prefix(kind, number)
        for turn in range(turns):
            at = index + turn
            exchange = exchanges.exchange(number, turn, at, kind)
            recipe = (*history, Segment("own", at, exchange.prompt_tokens))
            if turn:
                start = After(at - 1, self._scaled(think.delay(self._draws.uniform("turn think", at))))
            session = number if several else None
            request = maker.request(at, start, recipe, exchange.output_tokens, kind, session=session, turn=turn)
            if limit is not None and request.prompt_tokens + request.max_tokens > limit:
                return
            yield request
            history = (*recipe, Segment("answer", at, exchange.output_tokens))

    def _starts(self) -> Iterator[Start]:
        arrivals, limit = self.load.arrivals, self.load.duration
        if isinstance(arrivals, ClosedLoop):
            for number in itertools.count():
                if number < arrivals.users:
                    yield WhenFree(not_before=self._scaled(number * arrivals.ramp_up // arrivals.users))
                else:
                    yield WhenFree(self._scaled(arrivals.think.delay(self._draws.uniform("user think", number))))
        elif not isinstance(arrivals, TraceReplay):
            for time in arrivals.starts(self._draws):
                due = self._scaled(time)
                if limit is not None and due >= limit:
                    return
                yield At(due)

    def _scaled(self, time: Nanoseconds) -> Nanoseconds:
        return round(time * self.load.time_scale)


def _path(load: Load, file: str) -> Path:
    return load.folder / Path(file).expanduser()
