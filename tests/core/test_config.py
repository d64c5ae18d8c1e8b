import ast
import inspect
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from chairlift.core import config as module
from chairlift.core.config import SchedulerConfig, flag
from chairlift.core.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_model_len": 0}, "--max-model-len is 0; it must be at least 1."),
        ({"max_num_seqs": 0}, "--max-num-seqs is 0; it must be at least 1."),
        ({"max_num_batched_tokens": -1}, "--max-num-batched-tokens is -1; it must be at least 1."),
        ({"batch_size": 0}, "--batch-size is 0; it must be at least 1."),
        ({"max_batch_size": 0}, "--max-batch-size is 0; it must be at least 1."),
        ({"prefill_interval": 0}, "--prefill-interval is 0; it must be at least 1."),
        ({"max_queued_requests": -1}, "--max-queued-requests is -1; it must not be negative."),
        ({"max_queued_tokens": -1}, "--max-queued-tokens is -1; it must not be negative."),
        ({"max_queue_delay": -1}, "--max-queue-delay is -1; it must not be negative."),
        ({"policy": "shuttle"}, "--policy is 'shuttle'; it must be one of static, dynamic, continuous."),
        ({"kv_reservation": "most"}, "--kv-reservation is 'most'; it must be one of prompt, full, model_len."),
        ({"padding": "left"}, "--padding is 'left'; it must be one of longest, none."),
        ({"release": "never"}, "--release is 'never'; it must be one of batch, request, token."),
        ({"queue_order": "lifo"}, "--queue-order is 'lifo'; it must be one of fcfs, priority, shortest_prompt."),
        ({"watermark": 1.0}, "--watermark is 1.0; it is a share: between 0 and 1."),
        ({"watermark": -0.1}, "--watermark is -0.1; it is a share: between 0 and 1."),
        ({"watermark": float("nan")}, "--watermark is nan"),
        ({"prefill_interval_load": 1.1}, "--prefill-interval-load is 1.1; it is a share: between 0 and 1."),
        ({"max_wait": 0}, "--max-wait is 0 ns; it must be positive, or absent."),
        ({"target_itl": 0}, "--target-itl is 0 ns; it must be positive, or absent."),
        ({"preferred_batch_sizes": (4, 0)}, "--preferred-batch-sizes has 0; sizes are at least 1."),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_flag(settings: dict[str, Any], words: str) -> None:
    """The message names the flag, the value and what would do."""
    with pytest.raises(ConfigError) as caught:
        SchedulerConfig(**settings)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"max_num_batched_tokens": 64, "max_num_seqs": 128},
            "--max-num-seqs lets 128 sequences decode in one step: raise the first to 128 or lower the second to 64.",
        ),
        (
            {"policy": "static", "max_num_batched_tokens": 4, "batch_size": 5},
            "--max-num-batched-tokens is 4, but --batch-size lets 5",
        ),
        (
            {"policy": "dynamic", "max_num_batched_tokens": 4, "max_batch_size": 5},
            "--max-num-batched-tokens is 4, but --max-batch-size lets 5",
        ),
        (
            {"enable_chunked_prefill": False, "max_num_batched_tokens": 512, "max_model_len": 513},
            "raise the first to 513, or enable chunked prefill",
        ),
        ({"padding": "longest"}, "Use --padding none"),
        ({"release": "batch"}, "Use token or request"),
        ({"policy": "static", "kv_reservation": "prompt"}, "use full or model_len with --policy static"),
        ({"policy": "dynamic", "kv_reservation": "prompt"}, "use full or model_len with --policy dynamic"),
        (
            {"max_batch_size": 8, "preferred_batch_sizes": (4, 16)},
            "--preferred-batch-sizes has 16, above --max-batch-size 8: such a batch can never leave",
        ),
        (
            {"policy": "static", "batch_size": 8, "max_queued_requests": 7},
            "--max-queued-requests is 7, below --batch-size 8: the batch could never fill",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], words: str) -> None:
    """The message names both flags and the way out."""
    with pytest.raises(ConfigError) as caught:
        SchedulerConfig(**settings)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_num_batched_tokens": 8, "max_num_seqs": 8},
        {"enable_chunked_prefill": False, "max_num_batched_tokens": 512, "max_model_len": 512},
        {"policy": "static", "batch_size": 8, "max_queued_requests": 8},
        {"policy": "static", "batch_size": 8, "max_queued_requests": 7, "max_wait": 1},
        {"policy": "static", "batch_size": 8, "max_queued_requests": 0},
        {"policy": "static", "max_num_seqs": 600, "max_num_batched_tokens": 8},
        {"policy": "dynamic", "max_queue_delay": 0, "preferred_batch_sizes": (8,)},
        {"watermark": 0, "prefill_interval_load": 1},
    ],
)
def test_the_edges_of_what_is_allowed_are_allowed(settings: dict[str, Any]) -> None:
    """Equality at a limit passes, and limits of other policies are not asked for."""
    SchedulerConfig(**settings)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("continuous", ("prompt", "none", "token", 5)),
        ("static", ("full", "longest", "batch", 6)),
        ("dynamic", ("full", "longest", "batch", 7)),
    ],
)
def test_each_policy_has_its_own_defaults(policy: Any, expected: tuple[str, str, str, int]) -> None:
    """KV reservation, padding, release and the number of rows follow the policy unless they are set."""
    config = SchedulerConfig(policy=policy, max_num_seqs=5, batch_size=6, max_batch_size=7)
    found = (config.effective_kv_reservation, config.effective_padding, config.effective_release, config.max_rows)
    assert found == expected
    assert config.closed == (policy != "continuous")


def test_a_setting_that_is_set_wins_over_the_policys_default() -> None:
    """The independent settings are independent."""
    config = SchedulerConfig(policy="static", kv_reservation="model_len", padding="none", release="token")
    assert config.effective_kv_reservation == "model_len"
    assert config.effective_padding == "none"
    assert config.effective_release == "token"


def test_another_policy_finds_the_rest_in_place_and_is_checked() -> None:
    """with_policy keeps every other setting, takes changes, and refuses what does not go together."""
    config = SchedulerConfig(batch_size=3, watermark=0.2)

    assert config.with_policy("static") == SchedulerConfig(policy="static", batch_size=3, watermark=0.2)
    assert config.with_policy("static", batch_size=4).batch_size == 4
    with pytest.raises(ConfigError, match="use full or model_len"):
        SchedulerConfig(kv_reservation="prompt").with_policy("static")


def test_a_setting_that_does_not_exist_is_refused() -> None:
    """A misspelt name in a live switch is a ConfigError like any other."""
    with pytest.raises(ConfigError, match="there is no setting max_seqs"):
        SchedulerConfig().with_policy("static", max_seqs=3)


def test_settings_cannot_be_changed() -> None:
    """A config is frozen: a change is a new config, checked again."""
    with pytest.raises(FrozenInstanceError):
        SchedulerConfig().max_num_seqs = 1  # type: ignore[misc]


def test_flags_are_the_field_names_with_dashes() -> None:
    """The command line and the messages speak of the same flags."""
    assert flag("max_num_batched_tokens") == "--max-num-batched-tokens"


def test_every_setting_explains_itself() -> None:
    """Each field has a docstring below it, which the command line shows."""
    (definition,) = [
        node
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef) and node.name == "SchedulerConfig"
    ]
    explained = {
        first.target.id
        for first, second in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(first, ast.AnnAssign)
        and isinstance(first.target, ast.Name)
        and isinstance(second, ast.Expr)
        and isinstance(second.value, ast.Constant)
    }
    assert explained == {field.name for field in fields(SchedulerConfig)}
