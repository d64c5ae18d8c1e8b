"""Many trials on all cores. The outcomes are those of one core, in the order asked for."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from chairlift.advisor.evaluate.outcome import Outcome
from chairlift.advisor.evaluate.rounds import Round
from chairlift.advisor.evaluate.run import Problem, evaluate
from chairlift.core.errors import ConfigError

_WORTH: Final = 4
"""Fewer trials than this at once start no processes: those take longer to start than a trial to run."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings to try."""

    problem: Problem
    settings: Mapping[str, Any]
    load: Round


class Pool:
    """Runs trials, and remembers none of them.

    Args:
        workers: processes; None: one for each core that this process may use. 1 runs everything here.
        progress: called with the number of trials done so far, after each.

    Raises:
        ConfigError: there is to be no process.
    """

    def __init__(self, workers: int | None = None, progress: Callable[[int], None] | None = None) -> None:
        if workers is not None and workers < 1:
            raise ConfigError(f"--workers is {workers}; at least one is needed.")
        self._workers = workers or _cores()
        self._executor: ProcessPoolExecutor | None = None
        self._progress = progress
        self.done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None

    def run(self, trials: Iterable[Trial]) -> list[Outcome]:
        """The outcome of each, in order."""
        several = list(trials)
        if self._workers == 1 or (self._executor is None and len(several) < _WORTH):
            return [self._told(evaluate(one.problem, one.settings, one.load)) for one in several]
        if self._executor is None:
            # A forked process would inherit threads' locks; one that is spawned imports anew and is clean.
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self._workers, mp_context=context)
        futures: list[Future[Outcome]] = [
            self._executor.submit(evaluate, one.problem, one.settings, one.load) for one in several
        ]
        return [self._told(one.result()) for one in futures]

    def _told(self, outcome: Outcome) -> Outcome:
        self.done += 1
        if self._progress is not None:
            self._progress(self.done)
        return outcome


def _cores() -> int:
    """Those that this process may use; all of them where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
