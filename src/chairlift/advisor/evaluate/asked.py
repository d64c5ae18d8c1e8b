"""A load from whatever its owner has: a file, a trace, a run that was kept, or three answers."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chairlift.core.errors import ConfigError, RecordError
from chairlift.core.request import Nanoseconds
from chairlift.lab.client.recorder import read_traces
from chairlift.lab.loads.arrivals import Burst, Poisson, TraceReplay
from chairlift.lab.loads.files import read_table
from chairlift.lab.loads.lengths import FixedLength, Lengths, LogNormalLength
from chairlift.lab.loads.load import Load
from chairlift.records.manifest import Manifest
from chairlift.records.reader import Run

COUNT: Final = 400
"""Requests of a load that is described by three answers."""
PROMPT_CV: Final = 0.8
OUTPUT_CV: Final = 1.0
"""Standard deviation over mean of lengths of which only the mean is known: between those of the public Azure traces
(conversations: prompts 1.1, answers 0.8; code: 0.8 and 2.1)."""
_SECOND: Final = 1e9


@dataclass(frozen=True, slots=True)
class Answers:
    """To the three questions: how long are prompts, how long are answers, how many come a second."""

    prompt: int
    """Tokens, on average."""
    output: int
    """Tokens, on average."""
    rate: float
    """Requests a second; 0: everything is there at once."""
    prompt_cv: float = PROMPT_CV
    output_cv: float = OUTPUT_CV
    count: int = COUNT

    def load(self) -> Load:
        """What they describe: independent users, lengths with a long tail unless their cv is 0.

        Raises:
            ConfigError: an answer cannot be.
        """
        for name, least in (
            ("prompt", 1),
            ("output", 1),
            ("rate", 0),
            ("prompt_cv", 0),
            ("output_cv", 0),
            ("count", 1),
        ):
            if (value := getattr(self, name)) < least:
                raise ConfigError(f"--{name.replace('_', '-')} is {value:g}; it must be at least {least}.")
        return Load(
            arrivals=Poisson(self.rate) if self.rate else Burst(self.count),
            prompt=_lengths(self.prompt, self.prompt_cv),
            output=_lengths(self.output, self.output_cv),
            count=self.count,
        )

    def __str__(self) -> str:
        """What was assumed, for people."""
        come = f"{self.rate:g} requests/s, independent of one another" if self.rate else f"{self.count:,} at once"
        return (
            f"prompts of {self.prompt:,} and answers of {self.output:,} tokens on average (standard deviation "
            f"{self.prompt_cv:g} and {self.output_cv:g} of that: --prompt-cv, --output-cv), {come}"
        )


def load_of_trace(path: Path) -> Load:
    """A recorded trace, as docs/loads.md names their formats."""
    return Load(arrivals=TraceReplay(file=str(path.resolve())))


def load_of_run(folder: Path, scratch: Path) -> Load:
    """The load of a run that was kept.

    A client's run has its load in its manifest, and that is taken where its files are still there. Otherwise what came
    is replayed: each request at the moment it was due, with the lengths that it had.

    Args:
        folder: of the run.
        scratch: where the replay's rows are written.

    Raises:
        RecordError: the folder has no run, or the run has no requests.
    """
    manifest = Manifest.read(folder)
    stored = manifest.load.get("load")
    if stored is not None:
        load = read_table(stored)
        arrivals = load.arrivals
        if not isinstance(arrivals, TraceReplay) or Path(arrivals.file).is_file():
            return load
    if manifest.client_schema is not None:
        traces = read_traces(folder)
        rows = [(one.scheduled, one.prompt_tokens, one.output_tokens) for one in traces]
    else:
        rows = [(one.arrival, one.prompt_tokens, one.output_tokens) for one in Run(folder).requests()]
    path = scratch / f"{folder.name}.csv"
    _write_trace(path, ((due, prompt, output) for due, prompt, output in rows if prompt and output), folder)
    return Load(arrivals=TraceReplay(file=str(path.resolve()), spread=False))


def _write_trace(path: Path, rows: Iterable[tuple[Nanoseconds, int, int]], folder: Path) -> None:
    """In the format `own` of docs/loads.md."""
    ordered = sorted(rows)
    if not ordered:
        raise RecordError(f"{folder} has no request with known lengths: nothing can be chosen for it.")
    first = ordered[0][0]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("time_s", "prompt_tokens", "output_tokens"))
        writer.writerows((f"{(due - first) / _SECOND:.9f}", prompt, output) for due, prompt, output in ordered)


def _lengths(mean: int, cv: float) -> Lengths:
    return LogNormalLength(mean=mean, cv=cv) if cv else FixedLength(mean)
