"""What all ways of making requests have in common: classes, prefixes, bounds."""

from __future__ import annotations

import itertools
from bisect import bisect
from collections.abc import Mapping
from typing import Final

from chairlift.lab.loads.draws import Draws
from chairlift.lab.loads.load import Load, Prefix
from chairlift.lab.loads.request import ScheduledRequest, Segment, Start

DEFAULT_CLASS: Final = ""
"""Name of the class of requests in a load without classes."""


class Maker:
    """Makes the requests of one load."""

    def __init__(self, load: Load, draws: Draws) -> None:
        self.load = load
        self.draws = draws
        self._names = sorted(load.classes)  # so that the order in the file does not matter
        self._shares = list(itertools.accumulate(load.classes[name].share for name in self._names))
        prefixes = {name: kind.prefix for name, kind in load.classes.items()} | {DEFAULT_CLASS: load.prefix}
        self._groups: Mapping[str, list[float]] = {
            name: list(itertools.accumulate(group**-prefix.skew for group in range(1, prefix.groups + 1)))
            for name, prefix in prefixes.items()
            if prefix is not None
        }

    def kind(self, number: int) -> str:
        """Class of request or session `number`."""
        if not self._names:
            return DEFAULT_CLASS
        return self._names[bisect(self._shares, self.draws.uniform("class", number) * self._shares[-1])]

    def prefix(self, kind: str, number: int) -> tuple[Segment, ...]:
        """The shared prefix of request or session `number`: one segment, or none."""
        own = self.load.classes[kind].prefix if kind in self.load.classes else None
        owner = kind if own is not None else DEFAULT_CLASS
        prefix: Prefix | None = own or self.load.prefix
        if prefix is None or self.draws.uniform("prefixed", number) >= prefix.share:
            return ()
        weights = self._groups[owner]
        group = bisect(weights, self.draws.uniform("group", number) * weights[-1])
        return (Segment(f"prefix/{owner}" if owner else "prefix", group, prefix.tokens),)

    def bound(self, kind: str, output_tokens: int) -> int:
        """The max_tokens of an answer that is to have so many tokens."""
        chosen = self.load.classes.get(kind)
        bound = (chosen.max_tokens if chosen else None) or self.load.max_tokens or 0
        return max(bound, output_tokens)

    def request(
        self,
        index: int,
        start: Start,
        recipe: tuple[Segment, ...],
        output_tokens: int,
        kind: str,
        *,
        session: int | None = None,
        turn: int = 0,
    ) -> ScheduledRequest:
        """The request, as its class or else the load has it."""
        load, chosen = self.load, self.load.classes.get(kind)
        priority = load.priority if chosen is None or chosen.priority is None else chosen.priority
        deadline = load.deadline if chosen is None or chosen.deadline is None else chosen.deadline
        ignore_eos = load.ignore_eos if chosen is None or chosen.ignore_eos is None else chosen.ignore_eos
        return ScheduledRequest(
            index=index,
            start=start,
            recipe=recipe,
            prompt_tokens=sum(segment.tokens for segment in recipe),
            output_tokens=output_tokens,
            max_tokens=self.bound(kind, output_tokens),
            ignore_eos=ignore_eos,
            priority=priority,
            deadline=deadline,
            kind=kind,
            session=session,
            turn=turn,
        )
