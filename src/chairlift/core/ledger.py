"""Where the wall clock went, to the nanosecond.

Every step and every gap between steps belongs to one category, and the categories sum to the wall clock exactly.

A step from plan() to commit() is the device's time, shared among its kinds of token in proportion to their number
(average cost), and host time for the rest. Device time longer than the step itself is cut to it. A gap is what the
scheduler was doing meanwhile: idle (nothing to do), held (requests wait because the policy waits), host (work was there
and nobody asked for a plan), switching (what ran was draining for a policy switch; steps of a drain are booked there
whole).

Shares are kept as exact integer products and divided only when read: steps of equal token total are added up first,
each kind gets the floor of its share, and what is left, at most four nanoseconds for each distinct total, goes to the
kind with the most. So one long stretch reads the same whether it was booked step by step or at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from chairlift.core.errors import ContractError
from chairlift.core.plan import TokenCounts
from chairlift.core.request import Nanoseconds


class Category(StrEnum):
    """What a stretch of time was for."""

    PREFILL = "prefill"
    DECODE = "decode"
    RECOMPUTE = "recompute"
    PADDING = "padding"
    DEAD = "dead"
    HOST = "host"
    HELD = "held"
    IDLE = "idle"
    SWITCHING = "switching"


DEVICE_CATEGORIES = (Category.PREFILL, Category.DECODE, Category.RECOMPUTE, Category.PADDING, Category.DEAD)


@dataclass(frozen=True, slots=True)
class SlotCounts:
    """Slot-steps: each step offers as many slots as the policy has rows (batch_size, max_batch_size or
    max_num_seqs).
    """

    live: int = 0
    """Rows of sequences that were still being worked on."""
    dead: int = 0
    """Rows of ended members of a closed batch."""
    empty: int = 0
    """Slots that nobody had."""


@dataclass(frozen=True, slots=True)
class LedgerReport:
    """The ledger at one moment. sum(times.values()) == wall."""

    wall: Nanoseconds
    times: dict[Category, Nanoseconds]
    tokens: TokenCounts
    slots: SlotCounts
    steps: int
    recoverable: Nanoseconds
    """Part of the device time: what the step predictor says the steps would not have cost without padding and dead
    rows. Less than padding + dead at average cost, since eight rows cost little more than one."""
    device: Nanoseconds
    """All device time, steps of a drain included."""

    @property
    def busy(self) -> float:
        """Device time / wall."""
        return self.device / self.wall if self.wall else 0.0

    @property
    def useful(self) -> float:
        """Prefill and decode tokens / all computed tokens."""
        return self.tokens.useful / self.tokens.total if self.tokens.total else 0.0


class Ledger:
    """Books time as it passes. Its clock starts with the first call and never runs backwards."""

    def __init__(self) -> None:
        self._start: Nanoseconds | None = None
        self._at: Nanoseconds = 0
        self._gap = Category.IDLE
        self._gaps = dict.fromkeys((Category.HOST, Category.HELD, Category.IDLE, Category.SWITCHING), 0)
        self._products: dict[int, list[int]] = {}
        """Token total of a step -> for each device category the sum of device time x tokens of that kind."""
        self._device = 0
        self._saved = 0
        """Femtoseconds."""
        self._steps = 0
        self._prefill = self._decode = self._recompute = self._padding = self._dead = 0
        self._live_rows = self._dead_rows = self._empty_rows = 0

    @property
    def gap(self) -> Category:
        """What passing time is booked as until the next call."""
        return self._gap

    def check(self, now: Nanoseconds) -> None:
        """Raises ContractError when `now` lies before the last booking."""
        if self._start is not None and now < self._at:
            raise ContractError(f"time ran backwards: {now} ns after {self._at} ns.")

    def pass_to(self, now: Nanoseconds, then: Category) -> None:
        """Book the gap up to `now`; what follows is booked as `then`."""
        self.check(now)
        if self._start is None:
            self._start = now
        else:
            self._gaps[self._gap] += now - self._at
        self._at = now
        self._gap = then

    def book_step(  # noqa: PLR0913 - one call a step, every figure of it
        self,
        now: Nanoseconds,
        *,
        device_time: Nanoseconds,
        tokens: TokenCounts,
        dead_rows: int,
        live_rows: int,
        slots: int,
        times: int = 1,
        saved: int = 0,
        switching: bool = False,
    ) -> None:
        """Book the time since the last call as one step, or as `times` equal ones of `device_time` together.

        `saved` is what the step predictor says these would not have cost without padding and dead rows, in femtoseconds
        and with its sign: noise above and below the prediction evens out in the sum, and only the sum is cut to the
        device time.
        """
        self.check(now)
        span = now - self._at
        device = min(device_time, span)
        self._at = now
        self._gap = Category.HOST
        self._device += device
        self._saved += saved
        self._steps += times
        self._prefill += tokens.prefill * times
        self._decode += tokens.decode * times
        self._recompute += tokens.recompute * times
        self._padding += tokens.padding * times
        self._dead += tokens.dead * times
        self._live_rows += live_rows * times
        self._dead_rows += dead_rows * times
        self._empty_rows += max(0, slots - live_rows - dead_rows) * times
        if switching:
            self._gaps[Category.SWITCHING] += span
            return
        self._gaps[Category.HOST] += span - device
        products = self._products.setdefault(tokens.total, [0, 0, 0, 0, 0])
        products[0] += device * tokens.prefill
        products[1] += device * tokens.decode
        products[2] += device * tokens.recompute
        products[3] += device * tokens.padding
        products[4] += device * tokens.dead

    def report(self, now: Nanoseconds | None = None) -> LedgerReport:
        """The books as they stand, the present gap up to `now` included (default: up to the last call)."""
        at = self._at if now is None else now
        self.check(at)
        times = dict.fromkeys(Category, 0)
        for total, products in self._products.items():
            shares = [product // total for product in products]
            shares[products.index(max(products))] += sum(products) // total - sum(shares)
            for category, share in zip(DEVICE_CATEGORIES, shares, strict=True):
                times[category] += share
        times.update(self._gaps)
        wall = 0
        if self._start is not None:
            times[self._gap] += at - self._at
            wall = at - self._start
        return LedgerReport(
            wall=wall,
            times=times,
            tokens=TokenCounts(self._prefill, self._decode, self._recompute, self._padding, self._dead),
            slots=SlotCounts(self._live_rows, self._dead_rows, self._empty_rows),
            steps=self._steps,
            recoverable=min(max(0, self._saved // 10**6), self._device),
            device=self._device,
        )
