import json
from pathlib import Path

import pytest

from chairlift.cli.demo_runs import DemoRun, DemoSizes, as_json, run_demo, staggered, straggler
from chairlift.cli.demo_table import conclusions, print_demo
from chairlift.cli.main import main
from chairlift.core.config import POLICIES, SchedulerConfig
from chairlift.core.plan import StepOutcome, StepPlan
from chairlift.engine.loader import LoadedModel
from chairlift.engine.sampling import BatchSampler
from chairlift.records.reader import Run
from chairlift.runners.fake import FakeRunner
from tests.engine.tiny import Clock, byte_tokenizer

SIZES = DemoSizes(slots=4, requests=12, short_answer=5, long_answer=40, long_every=4, straggler=60)


class TimedRunner(FakeRunner):
    """Its steps take their time on the clock of the test."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(num_blocks=256, vocabulary=128)
        self._clock = clock

    def execute(self, plan: StepPlan) -> StepOutcome:
        outcome = super().execute(plan)
        self._clock.time += outcome.device_time
        return outcome


def _loaded(clock: Clock) -> LoadedModel:
    return LoadedModel(
        name="fake",
        path=Path("fake"),
        runner=TimedRunner(clock),
        sampler=BatchSampler(),
        tokenizer=byte_tokenizer(),
        chat_template=None,
        scheduler=SchedulerConfig(**SIZES.settings()),
        memory="",
    )


@pytest.fixture(scope="module", name="runs")
def _runs() -> list[DemoRun]:
    clock = Clock()

    def sleep(nanoseconds: int) -> None:
        clock.time += nanoseconds

    return list(run_demo(_loaded(clock), SIZES, POLICIES, clock=clock, sleep=sleep))


def test_the_load_has_the_lengths_it_announces() -> None:
    """Prompts of 24 to 96 tokens, all different; each fourth answer long; arrivals at the stated gap."""
    load = staggered(SIZES, byte_tokenizer())

    assert len({tuple(one.prompt) for one in load}) == len(load) == 12
    assert all(24 <= len(one.prompt) <= 96 for one in load)
    assert [one.params.max_tokens for one in load].count(40) == 3
    assert [one.due for one in load] == [i * SIZES.gap for i in range(12)]
    assert [one.params.max_tokens for one in straggler(SIZES, byte_tokenizer())] == [5, 5, 5, 60]


def test_every_policy_serves_both_loads_completely(runs: list[DemoRun]) -> None:
    """Six runs; each answers every request with the tokens it asked for, and its ledger sums to the wall clock."""
    assert [(run.load, run.policy) for run in runs] == [
        (load, policy) for load in ("staggered", "straggler") for policy in POLICIES
    ]
    for run in runs:
        lengths = sorted(record.output_tokens for record in run.drive.requests)
        assert lengths == ([5] * 9 + [40] * 3 if run.load == "staggered" else [5, 5, 5, 60])
        assert sum(run.drive.ledger.times.values()) == run.drive.ledger.wall


def test_closed_batches_pay_for_padding_and_dead_rows_and_continuous_does_not(runs: list[DemoRun]) -> None:
    """The table's point: waste by kind, and three short answers that wait for the straggler."""
    for run in runs:
        tokens = run.drive.ledger.tokens
        assert (tokens.dead > 0) == (run.policy != "continuous")
        assert (tokens.padding > 0) == (run.policy != "continuous" and run.load == "staggered")
    dead = {run.policy: run.drive.ledger.tokens.dead for run in runs if run.load == "straggler"}
    assert dead == {"static": 3 * 55, "dynamic": 3 * 55, "continuous": 0}


def test_the_table_names_every_figure_and_the_next_commands(
    runs: list[DemoRun], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every figure that the help promises is a row, and what to try next follows."""
    print_demo(runs, SIZES)

    out = capsys.readouterr().out
    for title in (
        "wall time, s",
        "output tokens/s",
        "request latency, s, mean",
        "request latency, s, p99",
        "time to first token, s, mean",
        *("prefill", "decode", "padding", "dead", "recoverable", "held", "idle", "host"),
        "short answers leave after",
        "chairlift serve",
        "chairlift generate",
    ):
        assert title in out


def test_the_sentences_carry_the_measured_figures(runs: list[DemoRun]) -> None:
    """The winner is whoever the figures say, and the dead rows are those of the ledger."""
    first, second = conclusions(runs, SIZES)

    assert first.startswith("Staggered: continuous gave the most")
    assert "static 165, dynamic 165, continuous 0" in second


def test_the_figures_are_plain_json(runs: list[DemoRun]) -> None:
    """--json writes every run with its requests; nothing in it needs a special reader."""
    read = json.loads(json.dumps(as_json(runs, SIZES)))

    assert [run["policy"] for run in read["runs"]] == [*POLICIES, *POLICIES]
    assert all(sum(run["ledger"].values()) > 0 and run["requests"] for run in read["runs"])


def test_a_model_that_is_not_there_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the demo model the command says how to fetch it, and exits with 2."""
    monkeypatch.setenv("CHAIRLIFT_DEMO_MODEL", str(tmp_path / "absent.gguf"))

    assert main(["demo"]) == 2
    assert "make model" in capsys.readouterr().err


def test_each_run_is_kept_in_a_folder_of_its_own_where_one_is_named(tmp_path: Path) -> None:
    """Six runs leave six folders that read back, each with its load and policy in the manifest."""
    clock = Clock()

    def sleep(nanoseconds: int) -> None:
        clock.time += nanoseconds

    runs = list(run_demo(_loaded(clock), SIZES, POLICIES, clock=clock, sleep=sleep, folder=tmp_path))

    for one in runs:
        kept = Run(tmp_path / f"{one.load}-{one.policy}")
        assert kept.complete
        assert len(kept.requests()) == len(one.drive.requests)
        assert kept.manifest.load["name"] == f"demo {one.load}"
