"""Write the confusion table of docs/doctor.md: the doctor on every planted fault and every healthy run.

    python scripts/diagnose_ward.py           print it
    python scripts/diagnose_ward.py --write   put it into docs/doctor.md

Each case of the ward is run with the seed that its thresholds were set on and with seeds that they were not; then those
of another hand, with both.
"""

import argparse
import re
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from chairlift.advisor.doctor.diagnose import diagnose  # noqa: E402
from tests.advisor.doctor import strangers  # noqa: E402
from tests.advisor.doctor.ward import HEALTHY, SICK, Planted  # noqa: E402

PAGE = ROOT / "docs" / "doctor.md"
BEGIN, END = "<!-- ward: begin -->", "<!-- ward: end -->"
SHIFTS = (0, 1000, 2000, 3000, 4000)
"""Added to each seed; 0 is the one that the tests use."""


def shifted(planted: Planted, shift: int) -> Planted:
    """The same fault with another draw of its load; a load without a seed has seed 0."""
    if "seed=" not in planted.load:
        return replace(planted, load=f"{planted.load} seed={shift}")
    return replace(planted, load=re.sub(r"seed=(\d+)", lambda one: f"seed={int(one[1]) + shift}", planted.load))


def first_of(planted: Planted) -> str:
    """The rule that comes first; `healthy` where nothing is wrong."""
    first = diagnose(planted.make()).first
    return "healthy" if first is None else first.rule


def table() -> list[str]:
    """The page's part."""
    found: dict[bool, dict[str, Counter[str]]] = {False: defaultdict(Counter), True: defaultdict(Counter)}
    for shift in SHIFTS:
        for planted in (*SICK, *HEALTHY):
            found[bool(shift)][planted.cause or "healthy"][first_of(shifted(planted, shift))] += 1
    causes = [*dict.fromkeys(one.cause or "healthy" for one in (*SICK, *HEALTHY))]
    lines = [
        (
            f"{len(SICK)} sick runs over {len(causes) - 1} causes, {len(HEALTHY)} healthy ones; beside the seeds "
            f"that the thresholds were set on, {len(SHIFTS) - 1} others each."
        ),
        "",
        "| planted | runs | named first | other seeds: runs | named first | instead |",
        "|---|---|---|---|---|---|",
    ]
    for cause in causes:
        own, other = found[False][cause], found[True][cause]
        instead = ", ".join(f"{rule} {count}" for rule, count in (own + other).most_common() if rule != cause)
        lines.append(f"| {cause} | {own.total()} | {own[cause]} | {other.total()} | {other[cause]} | {instead} |")
    for name, group in (("seeds of the tests", found[False]), ("other seeds", found[True])):
        sick = [(cause, counts) for cause, counts in group.items() if cause != "healthy"]
        runs = sum(counts.total() for _, counts in sick)
        right = sum(counts[cause] for cause, counts in sick)
        well = group["healthy"]
        lines += [
            "",
            (
                f"With the {name}: the planted cause first in {right} of {runs} ({right / runs:.0%}); "
                f"{well.total() - well['healthy']} of {well.total()} healthy runs called sick."
            ),
        ]
    return lines


def of_strangers() -> list[str]:
    """Cases with other loads, devices and settings."""
    counts: Counter[tuple[bool, bool]] = Counter()
    wrong = []
    for shift in SHIFTS:
        for planted in (*strangers.SICK, *strangers.HEALTHY):
            first, cause = first_of(shifted(planted, shift)), planted.cause or "healthy"
            counts[planted.cause is None, first == cause] += 1
            if first != cause:
                wrong.append(f"{planted.name} ({cause}): {first}")
    sick, well = (counts[kind, True] + counts[kind, False] for kind in (False, True))
    lines = [
        "",
        (
            f"Strangers, {len(strangers.SICK)} sick and {len(strangers.HEALTHY)} healthy, each with {len(SHIFTS)} "
            f"seeds: the planted cause first in {counts[False, True]} of {sick} ({counts[False, True] / sick:.0%}); "
            f"{counts[True, False]} of {well} healthy runs called sick."
        ),
    ]
    if wrong:
        told = ", ".join(f"{what} {count} times" for what, count in Counter(wrong).most_common())
        lines += ["", f"Wrong: {told}."]
    return lines


def main() -> int:
    """Print the table, or put it into the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put it into docs/doctor.md")
    arguments = parser.parse_args()
    lines = table() + of_strangers()
    if not arguments.write:
        print(*lines, sep="\n")
        return 0
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}", "utf-8")
    print(f"written to {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
