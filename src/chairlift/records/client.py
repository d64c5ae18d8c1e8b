"""What a client saw of a run: one trace for each request, its own health, and what the server said of itself.

Times are integer nanoseconds on the target's clock, zero at the run's start (the moment the load's time zero stands
for): monotonic time for a server and a model, virtual time for a simulation. A field is None when the moment never came
or nobody told.

    scheduled   the load wants the request to begin, sent or not
    sent        the client begins: name resolution, connecting and writing are what a user would wait for, too
    written     the request's last byte is with the operating system
    first_byte  status line and headers of the answer are in
    first_event     any event of the stream, be it without content
    first_content   the first event that carries generated content
    last_content    the last one that does
    end         the outcome is known

sent - scheduled is the client's own lateness, never the target's.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Self, overload

from chairlift.core.request import Nanoseconds, TokenId

CLIENT_SCHEMA_VERSION = 1
"""Raised whenever a field changes its meaning or goes; a new field alone does not raise it."""


class TokenSource(StrEnum):
    """How the number of a chunk's tokens is known. It is never guessed, and text is never tokenized again for it."""

    TOKEN_IDS = "ids"  # noqa: S105 - a word, no password
    """The target sent the ids."""
    RUNNING_COUNT = "running_count"
    """The target sent its count of output tokens so far with every chunk; the difference is the chunk's."""
    TOTAL = "total"
    """The count at the end equals the number of chunks: one token each, since each carried at least one."""
    UNKNOWN = "unknown"
    """Nobody told; the time between tokens is not observable there."""


class Chunk(NamedTuple):
    """One event that carried generated content: text, reasoning, a tool call, or token ids without text."""

    time: Nanoseconds
    """ns: when the client had it."""
    tokens: int | None
    """Tokens in it. 0: text that earlier tokens had held back."""
    source: TokenSource
    """How that is known."""


_SOURCES = tuple(TokenSource)
_UNTOLD = -1
"""Stands for a count that nobody told."""


class Chunks(Sequence[Chunk]):
    """An answer's chunks as columns: 17 bytes each, and nothing for a garbage collector to walk over.

    Attributes:
        times: ns, as in Chunk.
    """

    __slots__ = ("_sources", "_tokens", "times")

    def __init__(self, chunks: Iterable[tuple[Nanoseconds, int | None, TokenSource]] = ()) -> None:
        self.times = array("q")
        self._tokens = array("q")
        self._sources = array("b")
        for time, tokens, source in chunks:
            self.add(time, tokens, source)

    def add(self, time: Nanoseconds, tokens: int | None, source: TokenSource) -> None:
        """One more, while the answer is under way."""
        self.times.append(time)
        self._tokens.append(_UNTOLD if tokens is None else tokens)
        self._sources.append(_SOURCES.index(source))

    @classmethod
    def of_single_tokens(cls, times: Iterable[Nanoseconds], source: TokenSource) -> Self:
        """A token at each of these times."""
        chunks = cls()
        chunks.times = array("q", times)
        chunks._tokens = array("q", (1,)) * len(chunks.times)
        chunks._sources = array("b", (_SOURCES.index(source),)) * len(chunks.times)
        return chunks

    @property
    def tokens(self) -> list[int | None]:
        """Tokens of each."""
        return [None if count == _UNTOLD else count for count in self._tokens]

    @property
    def sources(self) -> list[TokenSource]:
        """How those are known."""
        return [_SOURCES[code] for code in self._sources]

    def one_each(self) -> Chunks:
        """The same, with a token in each by TokenSource.TOTAL."""
        return Chunks((time, 1, TokenSource.TOTAL) for time in self.times)

    def __len__(self) -> int:
        return len(self.times)

    @overload
    def __getitem__(self, index: int) -> Chunk: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Chunk]: ...

    def __getitem__(self, index: int | slice) -> Chunk | Sequence[Chunk]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        tokens = self._tokens[index]
        return Chunk(self.times[index], None if tokens == _UNTOLD else tokens, _SOURCES[self._sources[index]])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Chunks):
            return NotImplemented
        return (self.times, self._tokens, self._sources) == (other.times, other._tokens, other._sources)

    def __hash__(self) -> int:
        return hash((self.times.tobytes(), self._tokens.tobytes()))

    def __repr__(self) -> str:
        return f"Chunks({list(self)})"


class ErrorClass(StrEnum):
    """What kept a request from a whole answer."""

    CONNECT = "connect"
    """No connection: refused, unreachable, unknown host."""
    TIMEOUT = "timeout"
    """The client's time limit was over; the message says which."""
    OVERLOADED = "overloaded"
    """Status 429 or 503, or a full queue: another try may succeed, after `retry_after` where that was said."""
    REJECTED = "rejected"
    """Another status in the 400s: the request itself was refused."""
    SERVER = "server"
    """Another status of 500 and above."""
    BROKEN_STREAM = "broken_stream"
    """The answer stopped before its end: the connection was cut, or closed without a finish reason."""
    IN_STREAM = "in_stream"
    """The answer began well and then reported an error."""
    PROTOCOL = "protocol"
    """What came is not an answer of this API."""
    CUT = "cut"
    """The run ended first, by its own time limit or the user's interrupt. The target is not to blame."""
    UNSENT = "unsent"
    """The run ended before it was sent."""
    CLIENT = "client"
    """The client's own fault: no file descriptors, no ports, a bug."""


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """One request as the client lived through it; written when it ends, however it ends."""

    index: int
    """The request's number in its schedule, which has everything that was asked for."""
    scheduled: Nanoseconds
    """ns: when the load wants it. In closed loops and sessions: the end of the request before, plus the think time."""
    warmup: bool
    """Sent, but not to be counted: the load says so."""
    end: Nanoseconds
    """ns: when the outcome was known."""
    sent: Nanoseconds | None = None
    """ns: when the client began with it."""
    written: Nanoseconds | None = None
    """ns: when it was connected and the whole request was written."""
    first_byte: Nanoseconds | None = None
    """ns: when status line and headers were in."""
    first_event: Nanoseconds | None = None
    """ns: the first event of the stream of any kind, role-only and usage-only ones included."""
    first_content: Nanoseconds | None = None
    """ns: the first chunk. Reasoning is content; a role or a usage alone is not."""
    last_content: Nanoseconds | None = None
    """ns: the last chunk."""
    chunks: Chunks = field(default_factory=Chunks)
    """Every event that carried content, in order."""
    prompt_tokens: int | None = None
    """Tokens of the prompt, by the target's usage."""
    cached_tokens: int | None = None
    """Of these, found in its prefix cache."""
    output_tokens: int | None = None
    """Tokens generated, by the target's usage; what it had said so far where the answer broke off."""
    finish_reason: str | None = None
    """The target's own word: stop, length, ..."""
    status: int | None = None
    """HTTP status. None: there was no answer, or the target does not speak HTTP."""
    error: ErrorClass | None = None
    """None: a whole answer."""
    error_message: str = ""
    """What the target or the operating system said."""
    retry_after: Nanoseconds | None = None
    """ns: how long the target asked to stay away. The client does not try again by itself."""
    connection_reused: bool | None = None
    """Whether it went over a connection that had served another request; None where there is none."""
    text: str | None = None
    """The answer, reasoning left out; None unless the run was asked to keep texts."""
    token_ids: tuple[TokenId, ...] | None = None
    """The answer's tokens; None unless texts are kept and the target sent them."""
    deadline: Nanoseconds | None = None
    """ns: how long after `scheduled` the load wants the first token at the latest. None: it does not say."""

    @property
    def ok(self) -> bool:
        """Whether there was a whole answer."""
        return self.error is None

    @property
    def send_lag(self) -> Nanoseconds | None:
        """ns: how late the client began with it; None when it never did."""
        return None if self.sent is None else self.sent - self.scheduled


@dataclass(frozen=True, slots=True)
class HealthSample:
    """How the client itself was during one interval, a second by default."""

    time: Nanoseconds
    """ns: the interval's end."""
    interval: Nanoseconds
    """ns: its length."""
    loop_lags: tuple[Nanoseconds, ...]
    """ns: by how much the event loop missed each heartbeat. Whatever waited for the loop waited about as long."""
    sent: int
    """Requests begun in the interval."""
    send_lag_max: Nanoseconds
    """ns: the worst sent - scheduled among them; 0 when there was none."""
    in_flight: int
    """Requests begun and not ended, at its end."""
    chunks: int
    """Chunks received in the interval."""
    thread_cpu: float
    """Share of the interval that the client's thread ran on a core; near 1 it can do no more."""
    process_cpu: float
    """The same for all threads of the process; a model in the process counts, so it may exceed 1."""
    pressure: float | None
    """Share of the interval in which some task of the machine was ready and found no core (/proc/pressure/cpu).
    None where the system does not tell."""


@dataclass(frozen=True, slots=True)
class ServerSample:
    """What the server said of itself at one moment, in terms that are alike for all. None: it does not say."""

    time: Nanoseconds
    """ns: when the answer was in."""
    took: Nanoseconds
    """ns: how long it took to get."""
    running: float | None = None
    """Requests being computed."""
    waiting: float | None = None
    """Requests queued."""
    kv_usage: float | None = None
    """Share of the KV cache in use; 1 is all."""
    prompt_tokens: float | None = None
    """Total so far: prompt tokens, as the server counts them (llama.cpp leaves out those found in its cache)."""
    output_tokens: float | None = None
    """Total so far: generated tokens."""
    requests: float | None = None
    """Total so far: requests ended well."""
    preemptions: float | None = None
    """Total so far: times a request's KV blocks were taken from it."""
    prefix_queries: float | None = None
    """Total so far: prompt tokens looked up in the prefix cache."""
    prefix_hits: float | None = None
    """Total so far: prompt tokens found there."""
    ttft_sum: float | None = None
    """Seconds: total so far of the server's own times to first token."""
    ttft_count: float | None = None
    """How many those were."""
    series: Mapping[str, float] = field(default_factory=dict)
    """Everything of the server's that the lab knows by name, as `name{label="value"}` and as the server counts it."""
    error: str = ""
    """Why there is nothing; the sample then has only its time."""


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """How a device of the client's machine was at one moment. None: it does not say."""

    time: Nanoseconds
    """ns: when it was read."""
    device: str
    """Its name and number, or processor."""
    kind: str
    """gpu (by NVML) or cpu (all cores together)."""
    utilization: float | None = None
    """Share. gpu: of NVML's last sampling period in which any kernel ran, however little of the device it used. cpu: of
    the time since the sample before that the cores were not idle."""
    memory_used: int | None = None
    """Bytes. cpu: of the machine, what no new program could have."""
    memory_total: int | None = None
    """Bytes."""
    power: float | None = None
    """Watts."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number about the client, and the limit it is held to."""

    name: str
    """What was measured."""
    value: float | None
    """In `unit`; None where it could not be measured."""
    limit: float
    """Above this the client is called the bottleneck, if the number `decides`."""
    unit: str
    """ns, share or count."""
    decides: bool
    """Whether the number decides by itself, or only stands beside the others."""
    meaning: str
    """How it was computed, and over what."""

    @property
    def exceeded(self) -> bool:
        """Whether it is above its limit."""
        return self.value is not None and self.value > self.limit


@dataclass(frozen=True, slots=True)
class ClientVerdict:
    """Whether the client was the bottleneck, so that the run says more about it than about the target."""

    bottleneck: bool
    """One deciding number is above its limit."""
    evidence: tuple[Evidence, ...]
    """All numbers, those within their limits included."""

    @property
    def reasons(self) -> tuple[Evidence, ...]:
        """The numbers that decided against the client."""
        return tuple(one for one in self.evidence if one.decides and one.exceeded)


Observation = RequestTrace | HealthSample | ServerSample | DeviceSample
"""Whatever a run yields, as it happens."""
