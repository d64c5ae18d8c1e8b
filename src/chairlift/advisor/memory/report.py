"""Advice about memory as lines for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from chairlift.advisor.memory.advice import Alternative, MemoryAdvice, SharePoint
from chairlift.core.config import flag
from chairlift.core.extremes import rows_setting
from chairlift.devices.quantities import show_size, show_time


def advice_lines(advice: MemoryAdvice, notes: Iterable[str] = ()) -> Iterator[str]:
    """Everything, in the order in which it is decided."""
    question = advice.question
    kind = "" if question.device is None else f" ({question.device.provenance.kind})"
    yield f"{question.name}{kind}"
    yield from notes
    yield from str(advice.plan).splitlines()
    memory = question.memory
    yield (
        f"  {'KV of a token':<20}{memory.kv_bytes_per_token / 1024:>9,.1f} KiB   a block of {question.block_size}: "
        f"{show_size(advice.plan.block_bytes)}"
    )
    yield ""
    yield from _fits(advice)
    yield ""
    if advice.useful is not None:
        yield from _useful(advice)
        yield ""
    yield from _curve(advice)
    yield ""
    yield from _lengths(advice)
    if advice.extremes is not None:
        yield ""
        yield f"warning: {advice.extremes}"


def _fits(advice: MemoryAdvice) -> Iterator[str]:
    lengths, fitting, plan = advice.question.lengths, advice.fitting, advice.plan
    config = advice.question.config
    yield (
        f"lengths: prompt {lengths.prompt:,.0f}, output {lengths.output:,.0f} tokens on average, longest "
        f"{lengths.longest:,}; a running sequence holds {lengths.held:,.0f} tokens (standard deviation "
        f"{lengths.deviation:,.0f})"
    )
    yield (
        f"fits: {fitting.nearly_always:,} sequences 99% of the time ({fitting.on_average:,} if each held the mean), "
        f"KV reservation {config.effective_kv_reservation}; {flag(rows_setting(config))} is {config.max_rows:,}"
    )
    whole = plan.num_blocks // -(-config.max_model_len // plan.block_size)
    yield f"of full length ({flag('max_model_len')} {config.max_model_len:,}): {whole:,}"


def _useful(advice: MemoryAdvice) -> Iterator[str]:
    useful, config = advice.useful, advice.question.config
    if useful is None:
        return
    yield f"{'sequences':>10}{'tokens/s':>12}{'between tokens':>16}"
    for one in useful.points:
        mark = "   fits" if one.sequences == useful.fits else ""
        mark = "   useful: 90% of what all that fit give" if one.sequences == useful.useful else mark
        yield f"{one.sequences:>10,}{one.tokens_per_second:>12,.0f}{show_time(one.between_tokens):>16}{mark}"
    gain = useful.gain_of_twice
    more = "beyond the device model's range" if gain is None else f"{gain - 1:+.0%} tokens/s"
    yield f"twice as many as fit, if there were memory for them: {more}"
    yield f"binding: {advice.binding}{_meaning(advice)}"
    if advice.binding in ("bandwidth", "compute") and config.max_rows > 2 * useful.useful:
        yield (
            f"{flag(rows_setting(config))} {config.max_rows:,} is more than twice the useful {useful.useful:,}: the "
            f"rest mostly adds time between tokens"
        )


def _meaning(advice: MemoryAdvice) -> str:
    return {
        "memory": ": more sequences would give more; a smaller precision, more devices or shorter lengths make room",
        "bandwidth": ": what a further sequence costs is mostly reading its keys and values",
        "compute": ": what a further sequence costs is mostly arithmetic, its prompt's included",
        "not known": ": the device model ends before the curve bends",
    }.get(advice.binding, f": {flag(advice.binding)} stops below what fits and pays; raise it")


def _curve(advice: MemoryAdvice) -> Iterator[str]:
    config = advice.question.config
    points = [one for one in advice.curve if one.blocks]
    if (decides := advice.plan.decided_by) != flag("gpu_memory_utilization"):
        yield f"{decides} decides, and the share nothing; without {decides}:"
    yield f"{'share':>6}{'blocks':>10}{'sequences':>11}"
    for one in _thinned(points):
        late = "   starts, then its largest step runs out of memory" if one.fails_later else ""
        yield f"{one.share:>6.2f}{one.blocks:>10,}{one.sequences:>11,}{late}"
    if advice.starts_at is not None:
        yield f"below {flag('gpu_memory_utilization')} {advice.starts_at:.2f} one sequence of full length does not fit"
    if points and points[-1] is not advice.curve[-1]:
        first = advice.curve[advice.curve.index(points[-1]) + 1]
        yield f"from {first.share:.2f} on it does not start: what lies outside the budget has no room left"
    setting = f"{flag(rows_setting(config))} {config.max_rows:,}"
    if advice.enough_at is None:
        yield f"no share has room for {setting} at these lengths"
    else:
        yield f"from {advice.enough_at:.2f} on all of {setting} fit: a larger share changes nothing"


def _thinned(points: Sequence[SharePoint], most: int = 10) -> Iterator[SharePoint]:
    """Evenly spaced ones; the last always."""
    stride = max(1, -(-len(points) // most))
    for index, one in enumerate(points):
        if (len(points) - 1 - index) % stride == 0:
            yield one


def _lengths(advice: MemoryAdvice) -> Iterator[str]:
    yield (
        f"largest {flag('max_model_len')}: {advice.longest:,}; without chunked prefill {advice.longest_unchunked:,}, "
        f"since the largest step grows with it"
    )
    yield f"{'max_model_len':>14}{'of full length':>16}{'blocks, chunked':>17}{'unchunked':>11}"
    for one in advice.by_length:
        unchunked = "none" if one.blocks_unchunked is None else f"{one.blocks_unchunked:,}"
        yield f"{one.max_model_len:>14,}{one.whole:>16,}{advice.plan.num_blocks:>17,}{unchunked:>11}"


def alternative_lines(found: Sequence[Alternative]) -> Iterator[str]:
    """A line for each precision and number of devices."""
    heads = (("weights", 8), ("KV", 6), ("devices", 9), ("weights each", 14))
    more = (("pool, tokens", 14), ("sequences", 11), ("tokens/s", 10))
    yield "".join(f"{head:>{width}}" for head, width in (*heads, *more))
    for one in found:
        line = f"{one.weights:>8}{one.kv:>6}{one.tensor_parallel:>9}{show_size(one.weight_bytes):>14}"
        if one.tokens:
            yield f"{line}{one.tokens:>14,}{one.sequences:>11,}{one.tokens_per_second:>10,.0f}"
        else:
            yield f"{line}  does not fit"
