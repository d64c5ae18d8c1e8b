"""Every verdict with a run that deserves it and one that does not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chairlift.lab.measured import Measured
from chairlift.lab.studies import verdicts
from chairlift.lab.studies.folder import Verdict
from chairlift.lab.studies.study import Study
from tests.lab.sim_subject import sim_study

EIGHT = "name=eight arrivals=closed arrivals.users=8 prompt=32 output=16 count=16"
ALONE = "name=alone arrivals=closed arrivals.users=1 prompt=32 output=16 count=3"
LONG = "name=long arrivals=closed arrivals.users=6 prompt=bimodal prompt.short=16 prompt.long=600 prompt.ratio=3:1 "
LONG += "output=24 count=24"


async def run(study: Study, load: str, **settings: Any) -> Measured:
    """One run of a study."""
    return await study.run("run", load, settings)


async def test_max_num_seqs_that_holds_output_back_is_named(tmp_path: Path) -> None:
    """Eight users and one slot: seven wait, and the value to try is eight."""
    study = sim_study("t", tmp_path)
    alone, many = await run(study, ALONE), await run(study, EIGHT, max_num_seqs=1)
    [found] = verdicts.no_rise(alone, many, 8, study.config(many))

    assert (found.setting, found.before, found.after) == ("--max-num-seqs", 1, 8)
    assert "up to 1 ran at once, up to 7 waited" in found.evidence


async def test_a_full_pool_that_holds_output_back_is_named(tmp_path: Path) -> None:
    """Six blocks hold two requests of three blocks; eight need twenty-four."""
    study = sim_study("t", tmp_path)
    settings = {"num_kv_blocks": 3, "max_model_len": 48, "kv_reservation": "full"}
    alone, many = await run(study, ALONE, **settings), await run(study, EIGHT, **settings)
    [found] = verdicts.no_rise(alone, many, 8, study.config(many))

    assert (found.setting, found.before, found.after) == ("--num-kv-blocks", 3, 24)
    assert "3 of 3 KV blocks held" in found.evidence


async def test_a_device_that_is_used_up_is_no_settings_fault(tmp_path: Path) -> None:
    """Each token costs as much as the next: nothing is to be changed."""
    study = sim_study("t", tmp_path, max_num_seqs=8)
    alone = await run(study, ALONE)
    [found] = verdicts.no_rise(alone, alone, 8, study.config(alone))

    assert found.setting is None
    assert "few sequences use the device up" in found.verdict


async def test_output_that_rises_gets_no_verdict(tmp_path: Path) -> None:
    """Eight at once cost the toy device no more than one."""
    study = sim_study("t", tmp_path)
    alone, many = [await run(study, load.replace("prompt=32", "prompt=4")) for load in (ALONE, EIGHT)]

    assert list(verdicts.no_rise(alone, many, 8, study.config(many))) == []
    assert "nothing binds yet" in verdicts.binding_constraint(many, study.config(many), (alone, 1, 8))


async def test_prompts_that_stall_answers_are_found(tmp_path: Path) -> None:
    """Steps of 600 tokens between steps of 6: a quarter of the budget is to be tried."""
    study = sim_study("t", tmp_path)
    one = await run(study, LONG, max_num_batched_tokens=1024)
    [found] = verdicts.prefill_stalls(one, study.config(one))

    assert (found.setting, found.before, found.after) == ("--max-num-batched-tokens", 1024, 256)
    assert "busy" in found.evidence


async def test_whole_prompts_are_to_be_chunked(tmp_path: Path) -> None:
    """Where chunking is off, it is the first thing to change."""
    study = sim_study("t", tmp_path)
    one = await run(study, LONG, max_num_batched_tokens=1024, enable_chunked_prefill=False)
    [found] = verdicts.prefill_stalls(one, study.config(one))

    assert (found.setting, found.after) == ("--enable-chunked-prefill", "on")


async def test_an_even_time_between_tokens_gets_no_verdict(tmp_path: Path) -> None:
    """Small steps, or a batch whose times nobody can observe."""
    study = sim_study("t", tmp_path)
    small = await run(study, LONG, max_num_batched_tokens=32, max_num_seqs=8)
    held = await run(study, EIGHT, policy="static", batch_size=8)

    assert list(verdicts.prefill_stalls(small, study.config(small))) == []
    assert list(verdicts.prefill_stalls(held, study.config(held))) == []


async def test_preemptions_ask_for_a_larger_pool(tmp_path: Path) -> None:
    """As many blocks as would hold all that run."""
    study = sim_study("t", tmp_path)
    short = await run(study, EIGHT.replace("output=16", "output=64"), num_kv_blocks=24, max_model_len=128)
    enough = await run(study, EIGHT)
    [found] = verdicts.short_of_memory(short, study.config(short))

    assert (found.setting, found.before) == ("--num-kv-blocks", 24)
    assert isinstance(found.after, int)
    assert found.after >= 30
    assert "preemptions" in found.evidence
    assert list(verdicts.short_of_memory(enough, study.config(enough))) == []


@pytest.mark.parametrize(
    ("output", "deserved"), [("bimodal output.short=4 output.long=64 output.ratio=7:1", 1), ("16", 0)]
)
async def test_a_closed_batch_with_stragglers_does_not_fit(output: str, deserved: int, tmp_path: Path) -> None:
    """Useful utilisation does not recover while the others wait for the straggler; with equal answers there is none."""
    study = sim_study("t", tmp_path)
    load = f"name=tail arrivals=burst arrivals.size=16 prompt=32 output={output}"
    one = await run(study, load, policy="static", batch_size=8)
    found: list[Verdict] = list(verdicts.outgrown(one, study.config(one)))

    assert len(found) == deserved
    assert all((one.setting, one.before, one.after) == ("--policy", "static", "continuous") for one in found)


async def test_requests_that_were_refused_say_why(tmp_path: Path) -> None:
    """In the engine's own words."""
    study = sim_study("t", tmp_path)
    one = await run(
        study, "name=five arrivals=burst arrivals.size=5 prompt=32 output=8", max_num_seqs=1, max_queued_requests=1
    )
    [found] = verdicts.refused(one)

    assert found.verdict.startswith(f"{one.failed} of 5 requests")
    assert "max-queued-requests" in found.evidence


async def test_what_binds_is_told_with_figures(tmp_path: Path) -> None:
    """Memory, a setting, or the device."""
    study = sim_study("t", tmp_path)
    slots = await run(study, EIGHT, max_num_seqs=2)
    memory = await run(study, EIGHT, num_kv_blocks=9, max_model_len=48)
    device = await run(study, EIGHT, max_num_seqs=8)

    said = [verdicts.binding_constraint(one, study.config(one)) for one in (slots, memory, device)]
    assert [text.split(":")[0] for text in said] == ["a setting binds", "memory binds", "the device binds"]


def test_elasticity_is_the_share_of_the_rise_that_arrives() -> None:
    """All, half (on logarithms), none."""
    assert verdicts.elasticity(10, 80, 1, 8) == pytest.approx(1)
    assert verdicts.elasticity(10, 20, 1, 4) == pytest.approx(0.5)
    assert verdicts.elasticity(10, 10, 4, 8) == 0


async def test_evidence_from_a_starved_client_is_doubted(tmp_path: Path) -> None:
    """Where something else had the machine, the verdict says to repeat before anything is changed."""
    study = sim_study("t", tmp_path)
    alone, many = await run(study, ALONE), await run(study, EIGHT, max_num_seqs=1)
    hungry = replace(many.result, client=replace(many.result.client, bottleneck=True))
    [found] = verdicts.no_rise(alone, replace(many, result=hungry), 8, study.config(many))

    assert "repeat it on a quiet one" in found.evidence
    assert verdicts.starved(alone, many) == ""
