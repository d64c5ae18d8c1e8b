"""Values in the units and words of a framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from chairlift.advisor.flags.settings import Settings

DEFAULT_BLOCK: Final = 16
"""Tokens of a block where nobody says how many."""


class CannotConvert(Exception):
    """A value that a framework has no word for. The message says why."""


def plain(value: Any) -> str:
    """As it is written nearly everywhere."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _microseconds(value: int, settings: Settings) -> str:  # noqa: ARG001 - the conversions are called alike
    return str(value // 1000)


def _duration(value: int, settings: Settings) -> str:  # noqa: ARG001
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if value >= size and value % size == 0:
            return f"{value // size}{unit}"
    return f"{value}ns"


def _bytes(value: int, settings: Settings) -> str:  # noqa: ARG001
    return f"{value}B"


def _commas(value: tuple[int, ...], settings: Settings) -> str:  # noqa: ARG001
    return ",".join(map(str, value))


def _list(value: Any, settings: Settings) -> str:  # noqa: ARG001
    return f"[ {', '.join(map(str, value if isinstance(value, tuple) else (value,)))} ]"


def _times_block(value: int, settings: Settings) -> str:
    return str(value * (settings.memory.block_size or DEFAULT_BLOCK))


def _chunk(value: int, settings: Settings) -> str:
    return str(value) if settings.scheduler.enable_chunked_prefill else "-1"


def _in_batches(value: int, settings: Settings) -> str:
    return str(-(-value // settings.scheduler.max_rows))


def _less_activations(value: float, settings: Settings) -> str:
    """Share of the device for weights and KV pool."""
    plan = settings.memory.plan
    if plan is None:
        raise CannotConvert(f"a share of {value:g} less the activations, which are not known: name the device")
    return f"{_down((plan.model.weights + plan.kv_pool) / plan.model.capacity):g}"


def _of_free(value: float, settings: Settings) -> str:
    """Share of what weights and runtime leave, for the KV pool."""
    plan = settings.memory.plan
    if plan is None:
        raise CannotConvert(
            f"a share of {value:g} of the whole device, where a share of what the weights leave is asked for: name the "
            "device"
        )
    return f"{_down(plan.kv_pool / (plan.model.capacity - plan.model.weights - plan.model.runtime)):g}"


def _down(share: float) -> float:
    """To three digits, never up: a share rounded up may not fit."""
    return int(share * 1000) / 1000


CONVERSIONS: Final[Mapping[str, Callable[[Any, Settings], str]]] = {
    "same": lambda value, _: plain(value),
    "boolean": lambda value, _: plain(value),
    "microseconds": _microseconds,
    "duration": _duration,
    "bytes": _bytes,
    "commas": _commas,
    "list": _list,
    "plus_one": lambda value, _: str(value + 1),
    "minus_one": lambda value, _: str(value - 1),
    "plus_rows": lambda value, settings: str(value + settings.scheduler.max_rows),
    "times_rows": lambda value, settings: str(value * settings.scheduler.max_rows),
    "times_block": _times_block,
    "chunk": _chunk,
    "in_batches": _in_batches,
    "less_activations": _less_activations,
    "of_free": _of_free,
}
"""Kind in the data file -> how a value is written. Raises CannotConvert where it cannot be."""
SWITCHES: Final = ("switch", "off_switch")
WORDS: Final = "words"
