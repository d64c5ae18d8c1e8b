"""Each parameter at a low, a middle and a high value, and what happened; and a static batch that runs unfilled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from chairlift.core.errors import ChairliftError, ConfigError
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.measured import Measured
from chairlift.lab.studies.child import attempt
from chairlift.lab.studies.folder import Cell, Column
from chairlift.lab.studies.parameter_cases import SHARES, Case, groups, largest
from chairlift.lab.studies.study import Study
from chairlift.lab.studies.words import number, percent, seconds
from chairlift.lab.subjects import ModelSubject, Settings
from chairlift.runners.openvino.memory import allowed_memory

_TTFT, _E2E, _BETWEEN = "ttft_from_schedule", "end_to_end_from_schedule", "time_between_tokens"
_COLUMNS: Final = (
    Column("parameter"),
    Column("value"),
    Column("rate", "tokens/s", "output"),
    Column("first_p50", "s", "first token p50"),
    Column("between_p50", "s", "between tokens p50"),
    Column("between_p99", "s", "between tokens p99"),
    Column("running", "", "most at once"),
    Column("preemptions"),
    Column("refused"),
    Column("judged"),
    Column("happened", "", "what happened"),
)
_ROOM: Final = 3
"""A memory-limited process gets one part in so many of what the machine allows."""
_WORSE, _LONGER, _MORE = 0.95, 1.2, 1.1
"""Beside the middle value: less than this output, or waits longer than this without so much more output."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What happened under one value. None: not known, or it did not run."""

    case: Case
    happened: str
    run: Measured | None = None
    refused: int | None = None
    """Requests that are refused for their length."""

    def figure(self, metric: str, which: float) -> float | None:
        """Of the client."""
        return None if self.run is None else self.run.figure(metric, which)

    @property
    def rate(self) -> float | None:
        return None if self.run is None else self.run.tokens_per_second

    def cells(self, judged: str) -> tuple[Cell, ...]:
        """A row of the table."""
        engine = None if self.run is None else self.run.engine
        return (
            self.case.parameter,
            self.case.value,
            self.rate,
            self.figure(_TTFT, 50),
            self.figure(_BETWEEN, 50),
            self.figure(_BETWEEN, 99),
            None if engine is None else engine.running_peak,
            None if engine is None else engine.preemptions,
            self.refused,
            judged,
            self.happened,
        )


def judge(one: Tried, middle: Tried | None) -> str:
    """Too low or too high, where the figures say so beside the middle value."""
    place = one.case.place
    if place == "middle":
        return "right" if one.run is not None else "did not run"
    word = f"too {place}"
    if one.rate is None:
        return word
    if middle is None or middle.rate is None:
        return "not known"
    gain = one.rate / middle.rate
    waits = [
        here / there
        for metric, which in ((_TTFT, 50), (_BETWEEN, 99))
        if (here := one.figure(metric, which)) and (there := middle.figure(metric, which))
    ]
    worse = gain < _WORSE or (max(waits, default=0.0) > _LONGER and gain < _MORE)
    return word if worse else f"no worse than {middle.case.value} here"


async def parameters(study: Study) -> None:
    """All of them.

    Raises:
        ConfigError: settings cannot be changed; or as Study.run.
        Interrupted: it was asked to end.
    """
    if not study.subject.settable:
        raise ConfigError(
            f"a parameter can only be tried by changing it, and {study.subject.name} is a server with settings of its "
            "own: give the model itself as TARGET, or sim:DEVICE/MODEL."
        )
    study.at_most(1024)
    study.subject.prepare([study.settings | dict(largest(study))])
    several = groups(study)
    study.subject.prepare([study.settings | dict(one.settings) for _, cases in several for one in cases])
    tried: list[Tried] = []
    for load, cases in several:
        for one in cases:
            tried.append(await _try(study, load, one))  # noqa: PERF401 - one after the other
    tried += await _memory_share(study)
    middles = {one.case.parameter: one for one in reversed(tried) if one.case.place == "middle"}
    middles["--no-enable-chunked-prefill"] = middles["--max-num-batched-tokens"]
    judged = [(one, judge(one, middles.get(one.case.parameter))) for one in tried]
    study.table(
        "parameters",
        "Each parameter at a low, a middle and a high value for its load, and whether the figures call it too low or "
        "too high beside the middle one.",
        _COLUMNS,
        [one.cells(word) for one, word in judged],
    )
    _say(study, judged)
    await partial_batches(study)


async def _try(study: Study, load: str, case: Case) -> Tried:
    label = f"{case.parameter.removeprefix('--')} {case.value}"
    try:
        run = await study.run(label, load, case.settings)
    except ChairliftError as error:
        study.say(f"{label}: {error}")
        return Tried(case, f"refused: {error}", refused=_refused(load, case.settings))
    return Tried(case, _happened(run), run, 0)


def _refused(load: str, settings: Settings) -> int | None:
    """How many requests of a load are longer than max_model_len; None where that is not the reason."""
    limit = settings.get("max_model_len")
    if limit is None:
        return None
    schedule = Schedule(load_from_pairs(load.split()))
    return sum(one.prompt_tokens + one.max_tokens > limit for one in schedule) or None


def _happened(run: Measured) -> str:
    engine = run.engine
    parts = []
    if engine is not None:
        if engine.preemptions:
            parts.append(f"{percent(engine.share('recompute'))} of the tokens computed again")
        if engine.waiting_peak:
            parts.append(f"up to {engine.waiting_peak} waited")
        if engine.largest_prefill_step:
            parts.append(f"steps with prompts up to {seconds(engine.largest_prefill_step)}")
    return ", ".join(parts) or "nobody waited"


async def _memory_share(study: Study) -> list[Tried]:
    """Too low and too high a share of memory; on a real device in a process of its own, so that nobody else is hurt."""
    name, subject = "gpu_memory_utilization", study.subject
    low, high = (Case(f"--{name.replace('_', '-')}", place, str(share), {name: share}) for place, share in SHARES)
    if not isinstance(subject, ModelSubject):
        load = "name=large-steps arrivals=burst arrivals.size=8 prompt=1024 output=16"
        steps = {"policy": "continuous", "max_num_batched_tokens": 8192, "max_model_len": 2048}
        return [await _try(study, load, replace(one, settings={**steps, **one.settings})) for one in (low, high)]
    limit = allowed_memory().total // _ROOM
    tried = []
    for one, bytes_ in ((low, 0), (high, limit)):
        done = attempt(subject.name, subject.given | dict(one.settings), bytes_)
        study.say(f"{one.parameter.removeprefix('--')} {one.value}: {done.outcome}")
        tried.append(Tried(one, f"{done.outcome}: {done.words}"))
    return tried


def _say(study: Study, judged: Sequence[tuple[Tried, str]]) -> None:
    """A sentence for each parameter, from its own rows."""
    for parameter in dict.fromkeys(one.case.parameter for one, _ in judged):
        parts = []
        for one, word in judged:
            if one.case.parameter != parameter:
                continue
            if one.run is None:
                count = f"{one.refused} requests " if one.refused else ""
                parts.append(f"{one.case.value}, {word}: {count}{one.happened.rstrip('.')}")
                continue
            figures = [
                f"{number(one.rate)} tokens/s",
                f"first token p50 {seconds(one.figure(_TTFT, 50))}",
                f"between tokens p99 {seconds(one.figure(_BETWEEN, 99))}",
            ]
            if one.run.engine is not None and one.run.engine.preemptions:
                figures.append(f"{one.run.engine.preemptions} preemptions")
            parts.append(f"{one.case.value}, {word}: {', '.join(figures)}")
        study.sentence(f"{parameter} {'; '.join(parts)}.")


async def partial_batches(study: Study) -> None:
    """A static batch of eight that leaves with fewer.

    Raises:
        ConfigError, Interrupted: as Study.run.
    """
    output = 24 if study.quick else 64
    settings = {"policy": "static", "batch_size": 8}
    rows: list[tuple[Cell, ...]] = []
    for members in (1, 2, 4, 8):
        load = f"name=batch-of-{members} arrivals=burst arrivals.size={members} prompt=32 output={output}"
        run = await study.run(f"static batch with {members} of 8", load, settings)
        rows.append((members, run.tokens_per_second, run.span))
    study.table(
        "partial",
        f"A static batch of eight that leaves with fewer members; prompts of 32 tokens, answers of {output}.",
        (Column("members"), Column("rate", "tokens/s", "output"), Column("took", "s")),
        rows,
        x="members",
        y="rate",
    )
    one, full = rows[0], rows[-1]
    if isinstance(one[1], float) and isinstance(full[1], float) and isinstance(one[2], float):
        study.sentence(
            f"A full batch of eight gives {number(full[1] / one[1])} times the output of one that leaves with a single "
            f"member ({number(full[1])} against {number(one[1])} tokens/s), in {number(float(full[2] or 0) / one[2])} "
            "times the time: a static batch that runs unfilled makes output as unsteady as its arrivals."
        )
