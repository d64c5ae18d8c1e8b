"""Runs of one load: what they are called together, which of them a picture shows, and under which names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chairlift.lab.report.sources import POLICY_ORDER, RunView

MOST_PANELS: Final = 6
"""Runs in one picture."""
_JOINTS: Final = " ,:-"
"""Between what runs are called together and what each is called alone."""


def representatives(group: Sequence[RunView]) -> Sequence[RunView]:
    """Runs that a picture shows, in the order of their policies: all, or where there are too many the last under each
    policy, since what a study tries out comes before what it then repeats.
    """
    if len(group) > MOST_PANELS:
        last = {view.policy: view for view in group}
        group = list(last.values()) if len(last) > 1 else group[:MOST_PANELS]
    return sorted(group, key=lambda view: POLICY_ORDER.index(view.policy) if view.policy in POLICY_ORDER else -1)


def policies(group: Sequence[RunView]) -> int:
    """How many there are in it."""
    return len({view.policy for view in group})


def group_name(group: Sequence[RunView]) -> str:
    """What the runs' labels begin with alike, else their load."""
    return _alike(group).strip(_JOINTS) or group[0].load_name


def short_labels(group: Sequence[RunView]) -> list[str]:
    """The runs' labels without what they begin with alike."""
    return [view.label[len(_alike(group)) :] for view in group]


def _alike(group: Sequence[RunView]) -> str:
    """What all labels begin with, up to a joint; nothing where a label would be left empty."""
    first, *others = [view.label for view in group]
    most = 0
    for at, letter in enumerate(first[:-1]):
        if any(label[: at + 1] != first[: at + 1] or len(label) == at + 1 for label in others):
            break
        if letter in _JOINTS and first[at + 1] not in _JOINTS:
            most = at + 1
    return first[:most] if others else ""
