"""Which steps are measured, given the largest that the settings permit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from chairlift.lab.calibration.steps import Probe, Row

ROWS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256)
"""Decodes in a step: dense where kernels change with every row."""
TOKENS: Final = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096)
"""Tokens of a prompt."""
JITTER: Final = 3
"""Tokens by which prompts of a repeat differ from the next: in use hardly two steps with prompts are of equal size, and
a device may prepare itself for a size that it meets for the first time."""
_LEAST_JITTERED: Final = 24


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """The largest step that is measured."""

    tokens: int
    """max_num_batched_tokens."""
    rows: int
    """Most sequences at once."""
    context: int
    """max_model_len."""


def probes(limits: ProbeLimits) -> list[Probe]:
    """Decodes against batch and context; prompts against tokens, start and number; both in one step."""
    found = [*_decodes(limits), *_prefills(limits), *_mixed(limits)]
    return list(dict.fromkeys(found))


def jittered(probe: Probe, repeat: int) -> Probe:
    """The probe as it is measured in a repeat: prompts a few tokens longer or shorter, by turns.

    Over 2 x JITTER + 1 repeats the mean is the probe itself. Decodes and short prompts are what they are.
    """
    change = (repeat * 3) % (2 * JITTER + 1) - JITTER
    rows = tuple(replace(row, count=row.count - change) if row.count >= _LEAST_JITTERED else row for row in probe.rows)
    return replace(probe, rows=rows)


def _decodes(limits: ProbeLimits) -> Iterator[Probe]:
    rows = [count for count in ROWS if count < limits.rows] + [limits.rows]
    for count in rows:
        yield Probe("decode", (Row(_short(limits) - 1),) * count)
    for count in sorted({1, min(4, limits.rows), limits.rows // 4, limits.rows // 2, limits.rows} - {0}):
        for share in (0.25, 0.5, 1.0):
            yield Probe("decode", (Row(max(_short(limits), int(limits.context * share)) - 1),) * count)


def _prefills(limits: ProbeLimits) -> Iterator[Probe]:
    most = min(limits.tokens, limits.context) - JITTER
    sizes = [size for size in TOKENS if size < most] + [most]
    for size in sizes:
        yield Probe("prefill", (Row(0, size),))
    for size in sizes[2::2]:
        for start in (limits.context // 4, limits.context // 2):
            if start + size + JITTER <= limits.context:
                yield Probe("prefill", (Row(start, size),))
    for count, size in ((2, 32), (4, 32), (8, 32), (2, 128), (4, 64), (8, 64), (16, 24)):
        if count * (size + JITTER) <= limits.tokens and count <= limits.rows and size <= most:
            yield Probe("prefill", (Row(0, size),) * count)


def _mixed(limits: ProbeLimits) -> Iterator[Probe]:
    context = _short(limits) * 3
    for rows in sorted({1, limits.rows // 8, limits.rows // 2, limits.rows - 1} - {0}):
        decodes = (Row(min(context, limits.context) - 1),) * rows
        for size in (32, 96, 224, limits.tokens - rows - JITTER):
            for start in (0, limits.context // 4):
                fits = start + size + JITTER <= limits.context and rows + size + JITTER <= limits.tokens
                if fits and size >= _LEAST_JITTERED and rows < limits.rows:
                    yield Probe("mixed", (*decodes, Row(start, size)))


def _short(limits: ProbeLimits) -> int:
    """A context that costs next to nothing."""
    return min(64, limits.context)
