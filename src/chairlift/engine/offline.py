"""A file of requests in, a file of answers out: OpenAI's batch file format, JSON lines.

An answer is appended as soon as it is there, so that a run that was killed is taken up where it ended: ids that the
output has are passed over, and a last line that is cut off is removed. What the bodies mean is the business of a
BatchFormat, so that a file and the server understand the same body in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from chairlift.core.errors import ChairliftError, EngineUnhealthy, RecordError, RequestError, RequestRefused
from chairlift.core.reasons import Reason
from chairlift.core.request import FinishReason, TokenId
from chairlift.engine.batch_files import BatchLine, answer_line, answered_ids, check_input, read_lines
from chairlift.engine.core import EngineCore
from chairlift.engine.outputs import OutputDelta
from chairlift.engine.params import SamplingParams

__all__ = ["BatchError", "BatchFormat", "BatchJob", "Progress", "answered_ids", "check_input", "run_batch"]

_AHEAD = 1024
"""Most requests handed to the scheduler before earlier ones have ended, where max_queued_requests sets no limit."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """What one line asks for: one or several answers."""

    prompts: Sequence[Sequence[TokenId]]
    params: Sequence[SamplingParams]
    """One for each prompt."""
    body: Callable[[Sequence[OutputDelta]], Mapping[str, Any]]
    """The response's body from the whole answers, in the prompts' order."""
    priority: int = 0
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class BatchError:
    """Why a line has no answer, as HTTP would say it."""

    status: int
    body: Mapping[str, Any]


class BatchFormat(Protocol):
    """What the bodies of a batch mean."""

    def read(self, custom_id: str, url: str, body: Mapping[str, Any]) -> BatchJob | BatchError:
        """Understand one line. Never raises on account of what is in it."""
        ...

    def error(self, error: ChairliftError) -> BatchError:
        """What to say of a request that was refused or failed."""
        ...


@dataclass(slots=True)
class Progress:
    """How far a batch is."""

    total: int
    """Lines of the input."""
    skipped: int
    """Of these, answered by an earlier run."""
    done: int = 0
    """Answered by this run, failures included."""
    failed: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0


@dataclass(slots=True)
class _Open:
    """A line whose answers are not all there."""

    line: BatchLine
    job: BatchJob
    answers: dict[int, OutputDelta] = field(default_factory=dict)
    finished: int = 0
    failed: bool = False


def run_batch(
    core: EngineCore,
    form: BatchFormat,
    source: Path,
    target: Path,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Answer every line of a file. Steps the engine in the calling thread; nobody else may.

    Args:
        core: the engine; it is not closed.
        form: understands the bodies.
        source: JSON lines with custom_id, method, url and body.
        target: gets a line for each of them, in the order in which they end. If it is there, the run is taken up.
        progress: called after every step; must be quick.

    Raises:
        RequestError: a line of the input is malformed, or an id comes twice; nothing was run.
        RecordError: a file cannot be read or written, or the output is of another kind.
        EngineUnhealthy: the device broke down, or work cannot be scheduled. What was answered is in the output.
    """
    done = answered_ids(target)
    total = check_input(source)
    batch = _Batch(core, form, Progress(total, skipped=0), progress)
    try:
        with target.open("a", encoding="utf-8") as out:
            batch.run(read_lines(source), done, out)
    except OSError as error:
        raise RecordError(f"{target} cannot be written: {error}") from error
    return batch.progress


class _Batch:
    """One run over the lines."""

    def __init__(
        self, core: EngineCore, form: BatchFormat, progress: Progress, show: Callable[[Progress], None]
    ) -> None:
        self.progress = progress
        self._core = core
        self._form = form
        self._show = show
        self._pending: deque[tuple[_Open, int]] = deque()
        """Requests of lines that were read, not submitted yet."""
        self._flying: set[str] = set()
        self._ready: list[tuple[BatchLine, int, Mapping[str, Any]]] = []
        """Lines to write: status and body."""

    def run(self, lines: Iterator[BatchLine], done: set[str], out: IO[str]) -> None:
        while True:
            exhausted = self._feed(lines, done)
            self._write(out)
            if exhausted and not self._pending and not self._flying:
                return
            wait = self._core.step()
            if self._core.broken:  # whoever is lost by it is left for a later run
                raise EngineUnhealthy(self._core.health().cause)
            if wait is not None and self._core.has_work:
                if wait.reason is Reason.STALLED:
                    raise EngineUnhealthy(wait.detail)
                self._core.end_input()  # it waits for company, and the queue is as full as it may be
            self._write(out)
            self._show(self.progress)

    def _feed(self, lines: Iterator[BatchLine], done: set[str]) -> bool:
        """Submit as many as the queue may hold. Returns whether the input is at its end."""
        most = self._core.config.max_queued_requests or _AHEAD
        while len(self._flying) < most:
            if not self._pending and not self._read(lines, done):
                self._core.end_input()
                return True
            if self._pending and not self._submit(*self._pending[0]):
                return False
        return False

    def _read(self, lines: Iterator[BatchLine], done: set[str]) -> bool:
        """Take in the next line that has no answer yet; False at the end."""
        for line in lines:
            if line.custom_id in done:
                self.progress.skipped += 1
                continue
            job = self._form.read(line.custom_id, line.url, line.body)
            if isinstance(job, BatchError):
                self._fail(line, job)
            else:
                opened = _Open(line, job)
                self._pending.extend((opened, index) for index in range(len(job.prompts)))
            return True
        return False

    def _submit(self, opened: _Open, index: int) -> bool:
        """False when the queue is full: later."""
        job = opened.job
        request_id = f"{opened.line.custom_id}#{index}"
        if not opened.failed:
            try:
                self._core.submit(
                    job.prompts[index],
                    job.params[index],
                    request_id=request_id,
                    sink=partial(self._take, opened, index),
                    priority=job.priority,
                    cache_salt=job.cache_salt,
                )
                self._flying.add(request_id)
            except RequestRefused as error:
                if error.refused.reason is Reason.QUEUE_FULL and self._flying:
                    return False
                self._give_up(opened, self._form.error(error))
        self._pending.popleft()
        return True

    def _take(self, opened: _Open, index: int, delta: OutputDelta) -> None:
        """A piece of an answer has come."""
        before = opened.answers.get(index)
        opened.answers[index] = delta if before is None else before.joined(delta)
        if delta.finish_reason is None:
            return
        self._flying.discard(delta.request_id)
        opened.finished += 1
        self.progress.output_tokens += delta.output_tokens
        self.progress.prompt_tokens += delta.prompt_tokens
        if opened.failed:
            return
        if delta.finish_reason is FinishReason.ERROR:
            self._give_up(opened, self._form.error(RequestError(delta.error)))
        elif opened.finished == len(opened.job.prompts):
            answers = [opened.answers[place] for place in range(opened.finished)]
            self._ready.append((opened.line, 200, opened.job.body(answers)))

    def _give_up(self, opened: _Open, error: BatchError) -> None:
        """One of a line's answers failed: the line has, and the others are not wanted any more."""
        opened.failed = True
        self._fail(opened.line, error)
        for index in range(len(opened.job.prompts)):
            self._core.cancel(f"{opened.line.custom_id}#{index}")

    def _fail(self, line: BatchLine, error: BatchError) -> None:
        self.progress.failed += 1
        self._ready.append((line, error.status, error.body))

    def _write(self, out: IO[str]) -> None:
        for line, status, body in self._ready:
            out.write(answer_line(line.number, line.custom_id, status, body))
            self.progress.done += 1
        if self._ready:
            out.flush()
            self._ready.clear()
