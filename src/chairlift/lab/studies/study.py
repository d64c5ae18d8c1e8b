"""A study at work: it runs loads on a subject, one after the other, and writes down what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from chairlift.core.config import POLICIES, SchedulerConfig
from chairlift.core.errors import ConfigError
from chairlift.lab.client.clock import SECOND
from chairlift.lab.client.options import RunOptions, Stop
from chairlift.lab.loads.arrivals import ClosedLoop
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.measured import DEFINITIONS, Measured
from chairlift.lab.studies.folder import Cell, Column, StudyFolder, StudyRun, Verdict, new_record, table
from chairlift.lab.subjects import Settings, Subject
from chairlift.records.client_rates import Limits
from chairlift.records.client_summary import definitions

SAMPLE_INTERVAL: Final = SECOND // 4
"""Between two looks at a server's metrics: runs are short, and its queue may be shorter still."""
WARM_UP: Final = ("name=warm-up", "arrivals=burst", "arrivals.size=4", "prompt=16", "output=8")
"""What a model is asked before the first run of a study."""
Say = Callable[[str], None]
"""Shows a line of progress."""


class Interrupted(Exception):
    """The user asked for an early end: what is there is kept and said to be incomplete."""


class Study:
    """One study.

    Args:
        name: of the study.
        subject: what is run.
        folder: where it is kept.
        quick: a smaller size.
        stop: asks for an early end.
        say: is told of each run as it ends.
        settings: of every run, unless a run says otherwise.

    Raises:
        RecordError: the folder holds a study, or cannot be written.
    """

    def __init__(
        self,
        name: str,
        subject: Subject,
        folder: Path,
        *,
        quick: bool = False,
        stop: Stop | None = None,
        say: Say = lambda _: None,
        settings: Settings | None = None,
    ) -> None:
        self.subject = subject
        self.quick = quick
        self.stop = stop or Stop()
        self.say = say
        self.settings = dict(settings or {})
        self._warm = False
        self.failures = 0
        """Requests without a whole answer, over all runs."""
        self.store = StudyFolder(folder, new_record(name, subject.name, quick=quick))
        self.record = self.store.record

    async def run(
        self,
        label: str,
        load: Schedule | str,
        settings: Settings | None = None,
        *,
        limits: Limits | None = None,
        options: RunOptions | None = None,
    ) -> Measured:
        """One run of a load, kept in the study.

        Args:
            label: what tables call it.
            load: a schedule, or key=value pairs of a load.
            settings: on top of the study's.
            limits: for goodput.
            options: how the client runs.

        Raises:
            ConfigError: a static batch could never fill; or as Subject.run.
            Interrupted: it was asked to end.
        """
        schedule = Schedule(load_from_pairs(load.split())) if isinstance(load, str) else load
        merged = {**self.settings, **(settings or {})}
        config = self.subject.config(merged)
        if config is not None:
            check_fills(schedule, config)
        folder = self.store.next_run(label)
        await self._warm_up(merged)
        options = options or RunOptions(sample_interval=SAMPLE_INTERVAL)
        result = await self.subject.run(schedule, merged, folder, options=options, limits=limits, stop=self.stop)
        measured = Measured(label, _policy(result.info.details, config), merged, result)
        self.record.runs.append(StudyRun(folder.name, label, measured.policy, merged))
        self._note(measured)
        self.store.save()
        if result.stopped:
            raise Interrupted
        self.say(told(measured))
        return measured

    async def _warm_up(self, settings: Settings) -> None:
        """Before the first run of a model: what is slow once (lazy imports, first shapes) is in no figure."""
        if self.subject.kind == "model" and not self._warm:
            self._warm = True
            schedule = Schedule(load_from_pairs(WARM_UP))
            await self.subject.run(schedule, settings, self.store.folder / "00-warm-up", stop=self.stop)

    def config(self, measured: Measured) -> SchedulerConfig | None:
        """The scheduler's settings of a run; None where the target does not say."""
        return self.subject.config(measured.settings)

    def at_most(self, tokens: int) -> None:
        """No request of this study is longer: where nobody gave a max_model_len, all runs have this one, so that no
        time goes into a KV pool for sequences that never come.
        """
        if self.subject.settable and "max_model_len" not in self.subject.given:
            self.settings.setdefault("max_model_len", tokens)

    def own_policy(self) -> str | None:
        """The policy that the user's settings have; None where the target does not say."""
        config = self.subject.config(self.settings)
        return None if config is None else config.policy

    def table(
        self, name: str, title: str, columns: Sequence[Column], rows: Iterable[Sequence[Cell]], **chart: str
    ) -> None:
        """Add a table."""
        self.record.tables.append(table(name, title, columns, list(rows), **chart))

    def sentence(self, text: str) -> None:
        """Add a sentence that the figures complete."""
        self.record.sentences.append(text)

    def conclude(self, verdicts: Iterable[Verdict]) -> None:
        """Add verdicts."""
        self.record.verdicts += verdicts

    def note(self, text: str) -> None:
        """Add what a reader must know; once."""
        if text not in self.record.notes:
            self.record.notes.append(text)

    def close(self, *, complete: bool = True) -> None:
        """Write the end."""
        self.record.definitions = dict(definitions()) | dict(DEFINITIONS) | self.record.definitions
        self.record.status = "complete" if complete else "running"
        self.store.save()

    def _note(self, measured: Measured) -> None:
        result = measured.result
        if result.client.bottleneck:
            why = ", ".join(one.name for one in result.client.reasons)
            self.note(f"{measured.label}: the client was the bottleneck ({why}); its figures are the client's.")
        if measured.failed:
            self.failures += measured.failed
            errors = ", ".join(f"{count} {name}" for name, count in result.summary.errors.items())
            self.note(f"{measured.label}: {measured.failed} of {result.summary.scheduled} requests failed ({errors}).")
        if result.summary.refused:
            self.note(f"{measured.label}: {len(result.summary.refused)} traces cannot be and are in no figure.")


async def take_turns(
    study: Study, load: Load, contenders: Mapping[str, Settings], rounds: int
) -> dict[str, list[Measured]]:
    """A load under several settings, round after round, each round drawn anew (seed + round) and the order turned
    round from one to the next.

    Returns:
        By label, a run for each round: values at one place make a pair.

    Raises:
        ConfigError, Interrupted: as Study.run.
    """
    study.subject.prepare([{**study.settings, **settings} for settings in contenders.values()])
    runs: dict[str, list[Measured]] = {label: [] for label in contenders}
    for number in range(rounds):
        schedule = Schedule(replace(load, seed=load.seed + number))
        for label in list(contenders)[:: 1 if number % 2 == 0 else -1]:
            name = f"{label}, round {number + 1}" if rounds > 1 else label
            runs[label].append(await study.run(name, schedule, contenders[label]))
    return runs


def check_fills(schedule: Schedule, config: SchedulerConfig) -> None:
    """A static batch waits until it is full: a closed loop with fewer users than that never sends enough.

    Raises:
        ConfigError: with both numbers and what would do.
    """
    arrivals = schedule.load.arrivals
    if config.policy != "static" or config.max_wait is not None or not isinstance(arrivals, ClosedLoop):
        return
    if arrivals.users < config.batch_size:
        raise ConfigError(
            f"a closed loop of {arrivals.users} users never fills a static batch of {config.batch_size}: each user "
            f"waits for an answer that waits for the batch. Lower --batch-size to {arrivals.users}, set --max-wait, or "
            f"take more users (arrivals.users={config.batch_size})."
        )


def told(measured: Measured) -> str:
    """A run in one line."""
    rate, first, last = (
        measured.tokens_per_second,
        measured.figure("ttft_from_schedule", 50),
        measured.figure("end_to_end_from_schedule", 99),
    )
    parts = [
        f"{measured.span:.1f} s",
        "no answers" if rate is None else f"{rate:.1f} output tokens/s",
        "" if first is None else f"TTFT p50 {first:.2f} s",
        "" if last is None else f"end to end p99 {last:.2f} s",
        f"{measured.failed} failed" if measured.failed else "",
    ]
    return f"{measured.label}: " + ", ".join(part for part in parts if part)


def policy_settings(policy: str, size: int | None = None) -> dict[str, Any]:
    """A policy with its batch size, or with how many may run at once.

    Raises:
        ConfigError: there is no such policy.
    """
    names = {"static": "batch_size", "dynamic": "max_batch_size", "continuous": "max_num_seqs"}
    if policy not in names:
        raise ConfigError(f"--policy is {policy!r}; it must be one of {', '.join(POLICIES)}.")
    return {"policy": policy} if size is None else {"policy": policy, names[policy]: size}


def _policy(details: Mapping[str, Any], config: SchedulerConfig | None) -> str | None:
    if config is not None:
        return config.policy
    known = details.get("policy")
    return None if known is None else str(known)
