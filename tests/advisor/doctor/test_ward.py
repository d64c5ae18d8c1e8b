"""The set of planted faults: the cause comes first, and nobody healthy is called sick."""

from functools import cache

import pytest

from chairlift.advisor.doctor.diagnose import Diagnosis, diagnose
from chairlift.advisor.doctor.report import diagnosis_lines
from chairlift.advisor.doctor.rules import RULES
from tests.advisor.doctor import strangers
from tests.advisor.doctor.ward import HEALTHY, SICK, Planted

ALL_SICK, ALL_HEALTHY = (*SICK, *strangers.SICK), (*HEALTHY, *strangers.HEALTHY)
NAMES = {one.name: one for one in (*ALL_SICK, *ALL_HEALTHY)}
BY_HAND = {"failed", "cut_short", "both_maxima", "machine_starved", "device_memory_full", "device_idle", "old_defaults"}
"""Rules whose examples are in test_rules."""


@cache
def diagnosed(name: str) -> Diagnosis:
    """Each case once."""
    return diagnose(NAMES[name].make())


def test_the_ward_is_large_enough() -> None:
    """At least 25 sick over at least 12 causes, and 10 healthy."""
    assert len(SICK) >= 25
    assert len({one.cause for one in SICK}) >= 12
    assert len(HEALTHY) >= 10


def test_every_rule_has_a_case() -> None:
    """In the ward or by hand."""
    assert {rule.__name__ for rule in RULES} == {one.cause for one in SICK} | BY_HAND


@pytest.mark.parametrize("planted", ALL_SICK, ids=lambda one: one.name)
def test_the_planted_cause_comes_first(planted: Planted) -> None:
    """With figures, and with something to do."""
    diagnosis = diagnosed(planted.name)
    first = diagnosis.first

    assert first is not None
    assert first.rule == planted.cause
    assert first.seen
    assert first.changes or first.advice
    text = " ".join(" ".join(diagnosis_lines(diagnosis)).split())
    assert f"[{planted.cause}, " in text


@pytest.mark.parametrize("planted", ALL_HEALTHY, ids=lambda one: one.name)
def test_nobody_healthy_is_called_sick(planted: Planted) -> None:
    """Notes are no sickness."""
    diagnosis = diagnosed(planted.name)

    assert [one.rule for one in diagnosis.findings if not one.note] == []
    assert "nothing is wrong" in "\n".join(diagnosis_lines(diagnosis))


def test_findings_are_in_order_of_what_they_account_for() -> None:
    """Notes last."""
    for planted in SICK:
        findings = diagnosed(planted.name).findings
        weights = [(one.note, -one.weight) for one in findings]

        assert weights == sorted(weights)


def test_as_plain_values() -> None:
    """What a gate reads."""
    told = diagnosed("four slots").to_json()

    assert told["sick"] is True
    assert told["findings"][0]["rule"] == "slots_short"
    assert told["findings"][0]["changes"] == [{"setting": "max_num_seqs", "from": 4, "to": 32}]
    assert len(told["looked_at"]) == len(RULES)
    assert told["figures"]["busy"]["means"] == "device time / wall"
    assert 0 < told["figures"]["busy"]["value"] <= 1
    assert diagnosed("32 users").to_json()["sick"] is False
