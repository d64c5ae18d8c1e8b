import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.config import POLICIES, PolicyName
from chairlift.core.errors import ChairliftError, EngineUnhealthy, RecordError, RequestError, RequestRefused
from chairlift.core.plan import StepOutcome, StepPlan
from chairlift.engine.batch_files import answer_line
from chairlift.engine.core import EngineCore
from chairlift.engine.offline import BatchError, BatchJob, Progress, answered_ids, run_batch
from chairlift.engine.outputs import OutputDelta
from chairlift.engine.params import SamplingParams
from chairlift.runners.fake import FakeRunner
from tests.engine.tiny import make_core


class PlainFormat:
    """Bodies are {"prompt": text or texts, "max_tokens": n}; answers are the token ids."""

    def __init__(self, core: EngineCore) -> None:
        self._encode = core.tokenizer.encode

    def read(self, custom_id: str, url: str, body: Mapping[str, Any]) -> BatchJob | BatchError:
        if url != "/plain":
            return BatchError(400, {"error": f"no url {url}"})
        prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        params = SamplingParams(max_tokens=body.get("max_tokens", 3))
        return BatchJob([self._encode(text) for text in prompts], [params] * len(prompts), self._answer)

    def error(self, error: ChairliftError) -> BatchError:
        return BatchError(400 if isinstance(error, RequestRefused) else 500, {"error": str(error)})

    @staticmethod
    def _answer(outputs: Sequence[OutputDelta]) -> Mapping[str, Any]:
        return {"tokens": [list(output.token_ids) for output in outputs]}


def line(custom_id: str, url: str = "/plain", **body: Any) -> str:
    """One request."""
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": {"prompt": custom_id, **body}})


def write(path: Path, *lines: str) -> Path:
    """A file of lines."""
    path.write_text("".join(one + "\n" for one in lines), encoding="utf-8")
    return path


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The answers by id; each id comes once."""
    rows = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    assert len({row["custom_id"] for row in rows}) == len(rows)
    return {row["custom_id"]: row for row in rows}


def answer(folder: Path, *lines: str, runner: FakeRunner | None = None, **settings: Any) -> Progress:
    """Run a batch of these lines in a folder."""
    core = make_core(runner, **settings)
    return run_batch(core, PlainFormat(core), write(folder / "in.jsonl", *lines), folder / "out.jsonl")


@pytest.mark.parametrize("policy", POLICIES)
def test_every_line_is_answered(policy: PolicyName, tmp_path: Path) -> None:
    """Whatever the policy, more lines than a batch holds, the last batch unfilled."""
    progress = answer(tmp_path, *(line(f"r{n}", max_tokens=n % 5 + 1) for n in range(21)), policy=policy, batch_size=4)

    rows = read(tmp_path / "out.jsonl")
    assert {name: len(row["response"]["body"]["tokens"][0]) for name, row in rows.items()} == {
        f"r{n}": n % 5 + 1 for n in range(21)
    }
    assert {row["response"]["status_code"] for row in rows.values()} == {200}
    assert (progress.total, progress.done, progress.failed, progress.skipped) == (21, 21, 0, 0)
    assert progress.output_tokens == sum(n % 5 + 1 for n in range(21))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_queue_shorter_than_a_batch_does_not_hold_it_for_ever(policy: PolicyName, tmp_path: Path) -> None:
    """Where the queue may hold fewer requests than a batch, batches leave with what there is and wait for no clock."""
    progress = answer(tmp_path, *map(line, "abcdefg"), policy=policy, max_queued_requests=3, max_wait=10**15)

    assert progress.done == 7


def test_several_answers_of_one_line_come_together(tmp_path: Path) -> None:
    """A line with three prompts has one answer with three texts, in order, though they are longer than the queue."""
    answer(
        tmp_path, line("a", prompt=["one", "two", "three"]), *map(line, ["one", "two", "three"]), max_queued_requests=2
    )

    rows = read(tmp_path / "out.jsonl")
    assert rows["a"]["response"]["body"]["tokens"] == [
        rows[name]["response"]["body"]["tokens"][0] for name in ("one", "two", "three")
    ]


def test_a_line_that_is_refused_is_its_own_answer(tmp_path: Path) -> None:
    """What is wrong with one line is said in its place; the others are answered."""
    progress = answer(
        tmp_path, line("good"), line("odd", url="/v2"), line("long", prompt=["fine", "x" * 600]), line("also good")
    )

    rows = read(tmp_path / "out.jsonl")
    assert {name: row["response"]["status_code"] for name, row in rows.items()} == {
        "good": 200,
        "odd": 400,
        "long": 400,
        "also good": 200,
    }
    assert "--max-model-len" in rows["long"]["response"]["body"]["error"]
    assert (progress.done, progress.failed) == (4, 2)


def test_a_device_failure_is_that_lines_answer(tmp_path: Path) -> None:
    """The row that failed becomes a 500 with the device's words."""
    runner = FakeRunner(vocabulary=128)
    runner.failing["b#0"] = "NaN"

    answer(tmp_path, *map(line, "abc"), runner=runner)

    rows = read(tmp_path / "out.jsonl")
    assert rows["b"]["response"] == {"status_code": 500, "request_id": "b#0", "body": {"error": "NaN"}}
    assert rows["c"]["response"]["status_code"] == 200


class CrashingRunner(FakeRunner):
    """The process is interrupted in its sixth step."""

    def execute(self, plan: StepPlan) -> StepOutcome:
        if plan.step == 5:
            raise KeyboardInterrupt
        return super().execute(plan)


def test_a_run_that_was_killed_is_taken_up(tmp_path: Path) -> None:
    """Answered ids are passed over, a torn last line is mended, and the whole is as if nothing had been."""
    lines = [line(f"r{n}", max_tokens=2 + n % 3) for n in range(12)]
    answer(tmp_path, *lines, max_num_seqs=2)
    expected = read(tmp_path / "out.jsonl")
    (tmp_path / "out.jsonl").unlink()
    with pytest.raises(KeyboardInterrupt):
        answer(tmp_path, *lines, max_num_seqs=2, runner=CrashingRunner(vocabulary=128))
    half = (tmp_path / "out.jsonl").read_bytes()
    assert 0 < len(read(tmp_path / "out.jsonl")) < 12
    (tmp_path / "out.jsonl").write_bytes(half + b'{"id":"batch_req_9","custom_id":"r9","resp')

    progress = answer(tmp_path, *lines, max_num_seqs=2)

    assert read(tmp_path / "out.jsonl") == expected
    assert progress.skipped == half.count(b"\n")
    assert progress.done + progress.skipped == progress.total == 12


@given(st.lists(st.text(max_size=5), max_size=4, unique=True), st.text(max_size=5), st.integers(0, 120))
def test_mending_keeps_whole_lines_and_only_them(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str], last: str, kept: int
) -> None:
    """Wherever the last line was cut off, the file is its whole lines afterwards."""
    path = tmp_path_factory.mktemp("mend") / "out.jsonl"
    whole = "".join(answer_line(1, name, 200, {}) for name in ids).encode()
    path.write_bytes(whole + answer_line(2, last, 200, {}).encode()[:-1][:kept])

    assert answered_ids(path) == set(ids)
    assert path.read_bytes() == whole


def test_a_torn_line_longer_than_a_read_is_found(tmp_path: Path) -> None:
    """The end of the last whole line may lie far back."""
    path = tmp_path / "out.jsonl"
    whole = answer_line(1, "a", 200, {}).encode()
    path.write_bytes(whole + b"x" * 200_000)

    assert answered_ids(path) == {"a"}
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 2 of .* is no JSON"),
        ("[]", "line 2 of .* is no JSON object"),
        ('{"custom_id": 7, "url": "/plain", "body": {}}', "custom_id 7; it must be a string"),
        ('{"custom_id": "b", "body": {}}', "url None; it must be a string"),
        ('{"custom_id": "b", "url": "/plain", "body": []}', r"body \[\]; it must be an object"),
        ('{"custom_id": "b", "url": "/plain", "body": {}, "method": "GET"}', "method 'GET'; it must be POST"),
        (line("a"), "custom_id 'a' of line 1"),
    ],
    ids=["torn", "list", "id", "url", "body", "method", "twice"],
)
def test_a_malformed_input_is_refused_before_anything_runs(text: str, words: str, tmp_path: Path) -> None:
    """The message has the line's number; the output is not touched."""
    with pytest.raises(RequestError, match=words):
        answer(tmp_path, line("a"), text)

    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    "text", ["dear diary", "dear diary\n", '{"id":"batch_req_1"}\n'], ids=["torn", "text", "other"]
)
def test_an_output_of_another_kind_is_left_as_it_is(text: str, tmp_path: Path) -> None:
    """Appending to a file that has no answers in it, or mending it, would spoil it."""
    (tmp_path / "out.jsonl").write_text(text)

    with pytest.raises(RecordError, match="no answers of a batch"):
        answer(tmp_path, line("a"))

    assert (tmp_path / "out.jsonl").read_text() == text


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """A missing input and an output that is a folder are errors with the path."""
    core = make_core()
    with pytest.raises(RecordError, match=r"missing\.jsonl cannot be read"):
        run_batch(core, PlainFormat(core), tmp_path / "missing.jsonl", tmp_path / "out.jsonl")
    with pytest.raises(RecordError, match="cannot be"):
        run_batch(core, PlainFormat(core), write(tmp_path / "in.jsonl", line("a")), tmp_path)


def test_blank_lines_are_nothing(tmp_path: Path) -> None:
    """An empty line at the end, or between, is no request."""
    assert answer(tmp_path, line("a"), "", line("b"), "").total == 2


class PoisonedRunner(FakeRunner):
    """Breaks down for good."""

    def execute(self, plan: StepPlan) -> StepOutcome:
        raise MemoryError("no more")


def test_a_broken_device_ends_the_run_with_words(tmp_path: Path) -> None:
    """No line is written as answered for what the device could not do, so that a later run takes it up."""
    with pytest.raises(EngineUnhealthy, match="no more"):
        answer(tmp_path, *map(line, "ab"), runner=PoisonedRunner())

    assert (tmp_path / "out.jsonl").read_text() == ""


def test_progress_is_shown_after_every_step(tmp_path: Path) -> None:
    """It only ever grows, up to everything done."""
    shown: list[tuple[int, int]] = []
    core = make_core(max_num_seqs=2)
    source = write(tmp_path / "in.jsonl", *map(line, "abcdef"))

    run_batch(
        core, PlainFormat(core), source, tmp_path / "out.jsonl", lambda now: shown.append((now.done, now.output_tokens))
    )

    assert shown == sorted(shown)
    assert shown[-1] == (6, 18)
