"""Four things that people say of batching, each put to a pair of settings and answered by the numbers.

A sentence is completed by what was measured, and says so where that does not bear out the expectation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.measured import Measured
from chairlift.lab.statistics import METHOD, Ratio, paired_ratio
from chairlift.lab.studies.folder import Cell, Column
from chairlift.lab.studies.study import Study, policy_settings, take_turns
from chairlift.lab.studies.sweep import gain_over
from chairlift.lab.studies.words import seconds

_LITTLE: Final = 1.05
"""A gain that is not worth a word."""
_BETWEEN: Final = "time_between_tokens"
_COLUMNS: Final = (
    Column("myth"),
    Column("figure"),
    Column("of"),
    Column("to"),
    Column("ratio"),
    Column("low", label="lower end"),
    Column("high", label="upper end"),
    Column("finding"),
)


async def myths(study: Study) -> None:
    """All four.

    Raises:
        ConfigError: settings cannot be changed; or as Study.run.
        Interrupted: it was asked to end.
    """
    if not study.subject.settable:
        raise ConfigError(
            f"each of the myths is a pair of settings, and {study.subject.name} is a server with settings of its own: "
            "give the model itself as TARGET, or sim:DEVICE/MODEL."
        )
    study.at_most(1024)
    rows: list[tuple[Cell, ...]] = []
    rows += await always_faster(study)
    rows += await bigger_is_better(study)
    rows += await mean_is_enough(study)
    rows += await fixed_length_shows_it(study)
    study.table("myths", f"Each myth as ratios of a pair. {METHOD}", _COLUMNS, rows, y="ratio", low="low", high="high")


def rounds_of(study: Study) -> int:
    """How often each pair runs."""
    return 3 if study.quick else 5


async def always_faster(study: Study) -> list[tuple[Cell, ...]]:
    """Continuous is always faster: on a short even load it has nothing to gain."""
    output, requests = (16, 16) if study.quick else (48, 32)
    load = load_from_pairs(
        f"name=short-and-even arrivals=burst arrivals.size={requests} prompt=32 output={output}".split()
    )
    runs = await take_turns(
        study,
        load,
        {"even, static": policy_settings("static", 8), "even, continuous": policy_settings("continuous", 8)},
        rounds_of(study),
    )
    gain = _ratio(runs["even, continuous"], runs["even, static"])
    what = (
        f'"Continuous is always faster": on {requests} requests with equal prompts and answers of {output} tokens, 8 '
    )
    what += f"at once, continuous gives {gain} static's output: "
    if gain.middle < _LITTLE or gain.finding in {"inside the noise", "lower"}:
        word = "no gain" if gain.finding != "lower" else "less"
        study.sentence(f"{what}{word}. Where all answers are of one length, static is enough.")
    else:
        study.sentence(f"{what}more even here, so this measurement does not show the myth to be wrong.")
    return [_row("continuous is always faster", "output tokens/s", "continuous", "static", gain)]


async def bigger_is_better(study: Study) -> list[tuple[Cell, ...]]:
    """Bigger batches are always better: beyond the bend only latency grows."""
    few, many = (16, 64)
    output = 10 if study.quick else 48
    load = load_from_pairs(f"name=sixty-four arrivals=burst arrivals.size={many} prompt=16 output={output}".split())
    budget = _budget(study, many)
    runs = await take_turns(
        study,
        load,
        {
            f"up to {size} at once": policy_settings("continuous", size) | {"max_num_batched_tokens": budget}
            for size in (few, many)
        },
        rounds_of(study),
    )
    small, large = runs[f"up to {few} at once"], runs[f"up to {many} at once"]
    gain, wait = _ratio(large, small), _latency(large, small, 50)
    what = f'"Bigger batches are always better": {many} at once instead of {few} give {gain} the output'
    what += "" if wait is None else f" and {wait} the time between tokens"
    if gain.middle < _LITTLE or gain.finding in {"inside the noise", "lower"}:
        study.sentence(f"{what}: only the latency grew.")
    elif wait is not None and wait.middle > gain.middle:
        study.sentence(
            f"{what}: more output, bought with more waiting than it brings. `chairlift study sweep` shows the bend."
        )
    else:
        study.sentence(
            f"{what}: here it still pays, so this measurement does not show the myth to be wrong; the bend lies "
            "further up (`chairlift study sweep`)."
        )
    rows = [_row("bigger batches are always better", "output tokens/s", f"{many}", f"{few}", gain)]
    if wait is not None:
        rows.append(_row("bigger batches are always better", "between tokens p50", f"{many}", f"{few}", wait))
    return rows


async def mean_is_enough(study: Study) -> list[tuple[Cell, ...]]:
    """Mean throughput is enough: two settings with about the same, and another tail."""
    long, output, count = (384, 16, 16) if study.quick else (768, 48, 48)
    load = load_from_pairs(
        f"name=long-prompts-between arrivals=closed arrivals.users=6 count={count} prompt=bimodal prompt.short=24 "
        f"prompt.long={long} prompt.ratio=5:1 output={output}".split()
    )
    large, small = max(1024, long + 64), 64
    base = policy_settings("continuous", 8)
    runs = await take_turns(
        study,
        load,
        {
            "whole prompts": base | {"max_num_batched_tokens": large},
            "prompts in pieces": base | {"max_num_batched_tokens": small},
        },
        rounds_of(study),
    )
    whole, pieces = runs["whole prompts"], runs["prompts in pieces"]
    output_ratio, tail = _ratio(whole, pieces), _latency(whole, pieces, 99)
    what = (
        f'"Mean throughput is enough": with steps of up to {large} tokens instead of {small} the same load has '
        f"{output_ratio} the output"
    )
    if tail is None:
        study.sentence(f"{what}; its time between tokens is not observable.")
        return [_row("mean throughput is enough", "output tokens/s", str(large), str(small), output_ratio)]
    worst = f"{seconds(_mean(whole, 99))} against {seconds(_mean(pieces, 99))}"
    what += f" and {tail} the p99 between tokens ({worst})"
    apart = max(tail.middle, 1 / tail.middle)
    if apart > 1.5 * max(output_ratio.middle, 1 / output_ratio.middle) and tail.finding != "inside the noise":
        study.sentence(f"{what}: the mean does not tell them apart, the tail does.")
    else:
        study.sentence(f"{what}: here the tail says no more than the mean, so this does not show the myth to be wrong.")
    return [
        _row("mean throughput is enough", "output tokens/s", str(large), str(small), output_ratio),
        _row("mean throughput is enough", "between tokens p99", str(large), str(small), tail),
    ]


async def fixed_length_shows_it(study: Study) -> list[tuple[Cell, ...]]:
    """A benchmark of one length shows what scheduling gains: it hides it."""
    mean, requests = (12, 24) if study.quick else (24, 64)
    gains: dict[str, Ratio] = {}
    unequal = f"output=bimodal output.short={mean // 3} output.long={mean * 5 // 3} output.ratio=1:1 output.order=cycle"
    for name, pairs in (("equal", f"output={mean}"), ("unequal", unequal)):
        load = load_from_pairs(f"name={name} arrivals=burst arrivals.size={requests} prompt=32 {pairs}".split())
        settings = {f"{name}, {policy}": policy_settings(policy, 4) for policy in ("static", "continuous")}
        runs = await take_turns(study, load, settings, rounds_of(study))
        gains[name] = _ratio(runs[f"{name}, continuous"], runs[f"{name}, static"])
    what = (
        f'"A fixed-length benchmark shows the gain of scheduling": with answers of {mean} tokens continuous gives '
        f"{gains['equal']} static's output, with answers of the same mean and 1:5 apart {gains['unequal']}"
    )
    if gains["unequal"].middle > _LITTLE * gains["equal"].middle:
        study.sentence(f"{what}: the benchmark of one length hides it.")
    else:
        study.sentence(f"{what}: here both say about the same, so this does not show the myth to be wrong.")
    myth = "a fixed-length benchmark shows the gain of scheduling"
    return [_row(myth, f"output tokens/s, {name}", "continuous", "static", gain) for name, gain in gains.items()]


def _budget(study: Study, rows: int) -> int:
    """Tokens of a step that let so many decode, and are otherwise as the user has them."""
    config = study.subject.config(study.settings)
    return rows if config is None else max(rows, config.max_num_batched_tokens)


def _ratio(ours: Sequence[Measured], theirs: Sequence[Measured]) -> Ratio:
    gain = gain_over(ours, theirs)
    if gain is None:
        failed = next((one for one in (*ours, *theirs) if not one.tokens_per_second), ours[0])
        raise ConfigError(f"nothing was answered in {failed.folder}: see its failures.")
    return gain


def _latency(ours: Sequence[Measured], theirs: Sequence[Measured], which: float) -> Ratio | None:
    """Time between tokens of one over the other; None where one has none."""
    pairs = [(a.figure(_BETWEEN, which), b.figure(_BETWEEN, which)) for a, b in zip(ours, theirs, strict=True)]
    known = [(a, b) for a, b in pairs if a and b]
    return paired_ratio([a for a, _ in known], [b for _, b in known]) if len(known) == len(pairs) else None


def _mean(runs: Sequence[Measured], which: float) -> float | None:
    values = [value for run in runs if (value := run.figure(_BETWEEN, which)) is not None]
    return sum(values) / len(values) if values else None


def _row(myth: str, figure: str, above: str, below: str, ratio: Ratio) -> tuple[Cell, ...]:
    return (myth, figure, above, below, ratio.middle, ratio.low, ratio.high, ratio.finding)
