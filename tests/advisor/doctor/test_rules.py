"""Rules whose examples are made by hand; those of the others are in the ward."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from chairlift.advisor.doctor.case import Case
from chairlift.advisor.doctor.diagnose import diagnose
from chairlift.advisor.doctor.facts import Facts
from chairlift.advisor.doctor.finding import Confidence, Finding
from chairlift.advisor.doctor.gpu import Gpu
from chairlift.advisor.doctor.rules import RULES, asked, closed, continuous, failures, memory, resources, version
from chairlift.core.config import KVCapacity, SchedulerConfig
from chairlift.records.client import ErrorClass
from tests.records.traces import failed, health, trace

Rule = Callable[[Case, Facts], Iterator[Finding]]
EMPTY = Case("empty")


def found(rule: Rule, facts: Facts | None = None, **case: Any) -> list[Finding]:
    """What one rule says."""
    return list(rule(Case("by hand", **case), facts or Facts()))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_without_figures_says_nothing(rule: Rule) -> None:
    """Unknown is neither well nor ill."""
    assert list(rule(EMPTY, Facts())) == []


def test_nothing_known_is_nothing_found() -> None:
    """No symptom, no finding."""
    diagnosis = diagnose(EMPTY)

    assert not diagnosis.sick
    assert diagnosis.symptoms == ()


def test_requests_that_fail_are_told_with_the_first_ones_words() -> None:
    """A broken stream among nine good answers; one in two thousand is none."""
    good = [trace(index, index * 10) for index in range(9)]
    bad = failed(9, 90, 200, ErrorClass.BROKEN_STREAM, error_message="connection reset")
    [finding] = found(failures.failed, traces=[*good, bad])

    assert finding.rule == "failed"
    assert [one.value for one in finding.seen] == ["1 of 10", "connection reset"]
    assert found(failures.failed, traces=good) == []
    many = [trace(index, index) for index in range(1999)]
    assert found(failures.failed, traces=[*many, replace(bad, index=1999)]) == []


def test_a_run_that_was_killed_before_anything_ended_is_sick() -> None:
    """Nothing ended: nothing can be judged, and that is said; with some answers it is a note."""
    diagnosis = diagnose(Case("killed", complete=False))
    [finding] = found(failures.cut_short, complete=False)
    [noted] = found(failures.cut_short, complete=False, traces=[trace(0, 0)])

    assert diagnosis.sick
    assert (finding.note, noted.note) == (False, True)
    assert found(failures.cut_short) == []


def test_a_cut_request_is_not_the_targets_fault() -> None:
    """The run's own time limit."""
    cut = failed(1, 10, 20, ErrorClass.CUT)

    assert found(failures.failed, traces=[trace(0, 0), cut]) == []


def test_both_maxima_are_a_note_with_the_setting() -> None:
    """It is told whether it was felt or not, and makes nobody sick."""
    config = SchedulerConfig(max_num_seqs=8, max_model_len=1024)
    [finding] = found(memory.both_maxima, config=config, capacity=KVCapacity(16, 100, 100))

    assert finding.note
    assert str(finding.changes[0]) == "--max-num-seqs from 8 to 1"
    assert found(memory.both_maxima, config=config, capacity=KVCapacity(16, 512, 512)) == []


def test_a_machine_without_processors_to_spare_is_noted() -> None:
    """Half of the time some task found none; where the system does not tell, nothing is said."""
    starved = [replace(health(second * 1000, 1), pressure=0.5) for second in range(5)]
    traces = [trace(0, 0)]
    [finding] = found(resources.machine_starved, traces=traces, health=starved)

    assert finding.note
    assert found(resources.machine_starved, traces=traces, health=[replace(starved[0], pressure=0.1)]) == []
    assert found(resources.machine_starved, traces=traces, health=[replace(starved[0], pressure=None)]) == []


def gpu(used: float, utilization: float | None) -> Gpu:
    """A device of 80 GiB."""
    return Gpu("a device", int(used * 80 * 2**30), 80 * 2**30, utilization)


def test_a_device_without_memory_left_is_noted() -> None:
    """99% in use; at 95% there is room for what the budget does not see."""
    [finding] = found(resources.device_memory_full, gpus=(gpu(0.5, None), gpu(0.99, None)))

    assert finding.note
    assert "99% of 80.0 GiB" in finding.seen[0].value
    assert found(resources.device_memory_full, gpus=(gpu(0.95, 0.9),)) == []


def test_requests_that_wait_for_an_idle_device_are_held_back_elsewhere() -> None:
    """A kernel in a tenth of the time and five waiting; nobody waiting, or a busy device, is well."""
    waiting = Facts(waiting_mean=5.0)

    assert [one.rule for one in found(resources.device_idle, waiting, gpus=(gpu(0.5, 0.1),))] == ["device_idle"]
    assert found(resources.device_idle, waiting, gpus=(gpu(0.5, 0.1), gpu(0.5, 0.9))) == []
    assert found(resources.device_idle, waiting, gpus=(gpu(0.5, None),)) == []
    assert found(resources.device_idle, Facts(waiting_mean=0.0), gpus=(gpu(0.5, 0.1),)) == []


def test_a_versions_lack_is_told_where_its_symptom_was_seen() -> None:
    """VLLM before 0.24 has no watermark: of interest where requests were preempted."""
    preempted = Facts(preemptions=5.0)
    findings = found(version.old_defaults, preempted, server="vllm", version="0.20.0")

    assert len(findings) == 1
    assert "--watermark" in findings[0].means
    assert findings[0].seen[2].value.startswith("https://")
    assert found(version.old_defaults, Facts(preemptions=0.0), server="vllm", version="0.20.0") == []
    assert found(version.old_defaults, preempted, server="vllm", version="0.32.0") == []
    assert found(version.old_defaults, preempted, server="vllm", version="dev") == []
    assert len(found(version.old_defaults, preempted, server="vllm", version="0.11.0")) == 2


def test_every_version_fact_has_a_source_and_a_symptom() -> None:
    """The data file is whole."""
    for one in version.changes():
        assert one.source.startswith("https://")
        assert one.symptom in ("preemptions", "queue", "memory", "stutter", "any")
        assert one.what
        assert one.advice


def test_slots_are_not_short_where_the_device_is_used_up() -> None:
    """Twice the sequences in steps twice as long give nothing: the limit is not to blame."""
    waiting = Facts(at_limit=0.9, kv_peak=0.3, rows_limit=16, waiting_mean=20.0)
    flat = replace(waiting, step_by_rows={4: 0.010, 8: 0.010, 16: 0.010})
    steep = replace(waiting, step_by_rows={4: 0.004, 8: 0.008, 16: 0.016})

    assert [one.rule for one in found(continuous.slots_short, flat)] == ["slots_short"]
    assert found(continuous.slots_short, steep) == []
    [unsure] = found(continuous.slots_short, waiting)
    assert unsure.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    ("steps", "gain"),
    [({4: 1.0, 8: 1.0, 16: 1.0}, 2.0), ({4: 4.0, 8: 8.0, 16: 16.0}, 1.0), ({16: 1.0}, None), ({8: 1.0, 9: 1.0}, None)],
)
def test_gain_of_twice_is_read_from_the_steps(steps: dict[int, float], gain: float | None) -> None:
    """A line through them; None where they are too few or too close."""
    assert continuous.gain_of_twice(steps, 16) == (None if gain is None else pytest.approx(gain))


def test_a_stutter_that_prompts_do_not_explain_is_not_laid_to_them() -> None:
    """The p99 is high, and steps with prompts are as short as those without."""
    stutter = Facts(itl_p50=0.05, itl_p99=0.25, decode_step=0.05, mixed_step=0.06, mixed_steps=50)

    assert found(continuous.prefill_interference, stutter) == []
    [finding] = found(continuous.prefill_interference, replace(stutter, mixed_step=0.25))
    assert finding.confidence is Confidence.SURE
    [server] = found(continuous.prefill_interference, Facts(itl_p50=0.05, itl_p99=0.25))
    assert server.confidence is Confidence.POSSIBLE


def test_a_stutter_that_nobody_notices_is_none() -> None:
    """Five times the median is 50 ms here; ten times and 0.1 s is an explosion. A stall of 0.3 s in every second answer
    is noticed below the p99.
    """
    quick = Facts(itl_p50=0.01, itl_p99=0.05, decode_step=0.01, mixed_step=0.05, mixed_steps=50)
    rare = replace(quick, itl_p99=0.012, mixed_step=0.3, stalls=0.005, output_mean=120.0)

    assert found(continuous.prefill_interference, quick) == []
    assert len(found(continuous.prefill_interference, replace(quick, itl_p99=0.11))) == 1
    assert [one.rule for one in found(continuous.prefill_interference, rare)] == ["prefill_interference"]
    assert found(continuous.prefill_interference, replace(rare, output_mean=20.0)) == []


def test_a_cliff_is_none_where_more_sequences_still_give_more() -> None:
    """A jump by 30% from 24 to 25 that 48 make good again."""
    cliff = {20: 0.010, 24: 0.010, 25: 0.020, 30: 0.021}
    seen = dict.fromkeys((20, 24, 25, 30, 60), 5)
    steep = Facts(step_by_rows=cliff, stretches=seen)

    assert [one.rule for one in found(continuous.batch_cliff, steep)] == ["batch_cliff"]
    assert found(continuous.batch_cliff, replace(steep, step_by_rows={**cliff, 60: 0.022})) == []
    assert found(continuous.batch_cliff, replace(steep, step_by_rows={20: 0.010, 24: 0.0105, 25: 0.011})) == []
    assert found(continuous.batch_cliff, replace(steep, stretches={24: 5, 25: 1})) == []  # one bad moment


def test_a_servers_queue_without_a_reason_needs_a_full_pool() -> None:
    """It does not say why its requests wait: a pool that is full all the time while some wait is likely enough."""
    full = Facts(kv_peak=1.0, kv_mean=0.97, running_mean=5.0, running_peak=6.0, waiting_mean=8.0)

    [finding] = found(memory.kv_too_small, full)
    assert finding.confidence is Confidence.LIKELY
    assert found(memory.kv_too_small, replace(full, kv_mean=0.5)) == []
    assert found(memory.kv_too_small, replace(full, waiting_mean=0.0)) == []


def test_a_live_server_that_generates_nothing_is_stuck() -> None:
    """Requests wait and the count of tokens stands still."""
    [finding] = found(failures.stuck, Facts(waiting_mean=3.0, details={"stuck_for": 30.0}))

    assert finding.rule == "stuck"


def test_a_warm_cache_is_more_than_the_load_shares() -> None:
    """A tenth more than what a perfect cache would find in this load."""
    load = {"description": {"shared_tokens": 0.3}}

    assert found(asked.warm_cache, Facts(cached=0.35), load=load) == []
    assert [one.rule for one in found(asked.warm_cache, Facts(cached=0.5), load=load)] == ["warm_cache"]


def test_waste_in_a_servers_ledger_needs_no_settings() -> None:
    """Our own server tells the shares and its policy on its metrics page."""
    [finding] = found(closed.straggler_waste, Facts(dead_time=0.5, useful=0.4, details={"policy": "dynamic"}))

    assert "dynamic batching does not fit" in finding.means
    assert str(finding.changes[0]) == "--policy from dynamic to continuous"
