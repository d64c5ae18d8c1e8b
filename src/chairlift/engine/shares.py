"""Whose tokens a step computed, told when it changes."""

from __future__ import annotations

from chairlift.core.plan import RowKind, StepPlan, TokenCounts
from chairlift.records.schema import ShareRecord

_DECODE, _DEAD, _NONE = TokenCounts(decode=1), TokenCounts(dead=1), TokenCounts()
_SINGLE = {RowKind.DECODE: _DECODE, RowKind.DEAD: _DEAD}


class Shares:
    """Each request's share of the last step. Steps in which nothing changes cost a comparison."""

    def __init__(self) -> None:
        self._held: dict[str, TokenCounts] = {}
        self._rows: tuple[tuple[str, ...], tuple[RowKind, ...]] | None = None
        """Of the last step, if all of them had one token."""
        self._all = False

    def tell_all(self, *, forget: bool) -> None:
        """At the next step tell every share, changed or not: somebody has come who knows none.

        Args:
            forget: nobody else is there, who would have to be told what has ended since.
        """
        self._all, self._rows = True, None
        if forget:
            self._held = {}

    def changes(self, plan: StepPlan) -> list[ShareRecord]:
        """What has changed with the step that was just committed."""
        rows = (plan.request_ids, plan.kinds)
        singles = plan.single_token_rows
        if rows == self._rows:
            return []
        self._rows = rows if singles == len(plan) else None
        shares = (*map(_SINGLE.__getitem__, plan.kinds[:singles]), *plan.shares)
        held, self._held = self._held, dict(zip(plan.request_ids, shares, strict=True))
        told_all, self._all = self._all, False
        left = [_record(plan.step, name, _NONE) for name in held if name not in self._held]
        changed = [
            _record(plan.step, name, share) for name, share in self._held.items() if told_all or held.get(name) != share
        ]
        return left + changed


def _record(step: int, name: str, share: TokenCounts) -> ShareRecord:
    return ShareRecord(step, name, share.prefill, share.decode, share.recompute, share.padding, share.dead)
