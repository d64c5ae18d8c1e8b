from collections import Counter

import pytest

from chairlift.lab.calibration.probes import JITTER, ProbeLimits, jittered, probes
from chairlift.lab.calibration.steps import Probe, Row

LIMITS = [ProbeLimits(512, 32, 2048), ProbeLimits(128, 8, 256), ProbeLimits(64, 1, 64), ProbeLimits(8192, 256, 8192)]


@pytest.mark.parametrize("limits", LIMITS)
def test_no_step_is_larger_than_permitted(limits: ProbeLimits) -> None:
    """Jitter included; and each is asked for once."""
    wanted = probes(limits)

    for probe in (jittered(one, repeat) for one in wanted for repeat in range(2 * JITTER + 1)):
        assert probe.tokens <= limits.tokens
        assert len(probe.rows) <= limits.rows
        assert max(row.end for row in probe.rows) <= limits.context
        assert min(row.count for row in probe.rows) >= 1
    assert len(set(wanted)) == len(wanted)


def test_every_term_is_measured_up_to_the_limits() -> None:
    """Decodes to all rows and full contexts, prompts to all tokens, chunks that begin late, both in one step."""
    wanted = probes(LIMITS[0])

    assert set(Counter(probe.term for probe in wanted)) == {"decode", "prefill", "mixed"}
    assert max(len(probe.rows) for probe in wanted if probe.term == "decode") == 32
    assert max(row.end for probe in wanted for row in probe.rows if probe.term == "decode") == 2048
    assert max(probe.tokens for probe in wanted if probe.term == "prefill") == 512 - JITTER
    assert any(row.start and row.count > 1 for probe in wanted for row in probe.rows)
    assert any(len(probe.rows) > 1 for probe in wanted if probe.term == "prefill")


def test_jitter_evens_out() -> None:
    """Over all repeats the mean is the probe; hardly two are alike; decodes and short prompts stay."""
    probe = Probe("mixed", (Row(99), Row(0, 64), Row(0, 16)))
    repeats = [jittered(probe, repeat) for repeat in range(2 * JITTER + 1)]

    assert sum(one.rows[1].count for one in repeats) == 64 * len(repeats)
    assert len({one.rows[1].count for one in repeats}) == len(repeats)
    assert {(one.rows[0], one.rows[2]) for one in repeats} == {(Row(99), Row(0, 16))}
