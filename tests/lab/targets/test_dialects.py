import pytest

from chairlift.lab.targets.dialects import DIALECTS, OPENAI, of_kind, recognise


@pytest.mark.parametrize(
    ("owner", "kind"),
    [
        ("vllm", "vllm"),
        ("sglang", "sglang"),
        ("llamacpp", "llama.cpp"),
        ("tensorrt_llm", "tensorrt-llm"),
        ("chairlift", "chairlift"),
        ("openai", "openai"),
        ("", "openai"),
    ],
)
def test_a_server_is_recognised_by_its_models_owner(owner: str, kind: str) -> None:
    """/v1/models says who owns them."""
    assert recognise(owner, "").kind == kind


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("vllm:num_requests_running 1", "vllm"),
        ("sglang:num_running_reqs 1", "sglang"),
        ("tgi_queue_size 1", "tgi"),
        ("llamacpp:requests_processing 1", "llama.cpp"),
        ("trtllm_num_requests_running 1", "tensorrt-llm"),
        ("nv_inference_count 1", "triton"),
        ("chairlift:num_requests_running 1", "chairlift"),
        ("python_gc_objects_collected_total 1", "openai"),
    ],
)
def test_a_server_is_recognised_by_its_metrics(line: str, kind: str) -> None:
    """Where the owner says nothing; wherever on the page the first of them stands."""
    assert recognise("library", line).kind == kind
    assert recognise("library", f"# HELP x y\n{line}").kind == kind


def test_a_prefix_inside_a_line_is_no_sign() -> None:
    """A help text may name another server."""
    assert recognise("", "# HELP requests as vllm:num_requests_running\nrequests 1") is OPENAI


def test_dialects_are_found_by_name() -> None:
    """For those who know better than any recognition."""
    assert [of_kind(dialect.kind) for dialect in DIALECTS] == list(DIALECTS)
    assert of_kind("openai") is OPENAI
    assert of_kind("basic") is None


def test_names_begin_with_their_prefix() -> None:
    """Or they would be filtered out before they are read."""
    for dialect in DIALECTS:
        names = dialect.metrics
        for field in names.__dataclass_fields__:
            if field != "prefix":
                assert all(name.startswith(names.prefix) for name in getattr(names, field)), (dialect.kind, field)
