from collections.abc import Iterable
from typing import Any, get_args

import pytest

from chairlift.advisor.flags.mapping import Entry, Framework, Lack, frameworks, parse, version_key
from chairlift.advisor.flags.settings import MemorySettings, Settings
from chairlift.core.config import PolicyName, SchedulerConfig
from chairlift.core.errors import ConfigError

NAMES = ("vllm", "sglang", "tgi", "tensorrt-llm", "triton", "tf-serving", "llama.cpp", "chairlift")


def everything(policy: PolicyName) -> set[str]:
    """Names of all settings that matter under a policy."""
    config = SchedulerConfig(policy=policy, prefill_interval=2)
    return set(Settings(config, MemorySettings()).values())


def under(policy: str, entries: Iterable[Entry | Lack]) -> set[str]:
    """Settings of entries that hold under a policy."""
    return {one.setting for one in entries if not one.policies or policy in one.policies}


def test_the_table_has_all_that_the_command_offers() -> None:
    """In the order of the help."""
    assert set(frameworks()) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_said_or_said_to_be_lost(name: str) -> None:
    """Under every policy that a framework has; what is assumed of both has one reason. Nothing is silently dropped."""
    framework = frameworks()[name]
    free = {"policy", "prefill_interval_load"} if name != "chairlift" else set()
    for policy in framework.policies:
        said = under(policy, framework.flags) | under(policy, framework.lacks)

        assert everything(policy) - said - free == set()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_only_settings_that_there_are(name: str) -> None:
    """Each with a reason and a source; policies are policies."""
    framework = frameworks()[name]
    known = set().union(*(everything(policy) for policy in get_args(PolicyName)))
    entries: list[Entry | Lack] = [*framework.flags, *framework.lacks]
    for one in entries:
        assert one.setting in known
        assert one.source.startswith(("https://", "docs/"))
    for flag in framework.flags:
        assert flag.reason
        assert set(flag.policies) <= set(framework.policies)
    for lack in framework.lacks:
        assert lack.why


@pytest.mark.parametrize("name", NAMES)
def test_a_flag_is_not_both_said_and_lost(name: str) -> None:
    """One or the other."""
    framework = frameworks()[name]

    for policy in framework.policies:
        assert not under(policy, framework.flags) & under(policy, framework.lacks)


@pytest.mark.parametrize(
    ("older", "newer"),
    [("0.9.2", "0.10.0"), ("0.5.23", "0.5.23.1"), ("b4000", "b11549"), ("v1.0", "1.2"), ("1.0rc1", "1.2")],
)
def test_versions_are_compared_by_number(older: str, newer: str) -> None:
    """0.9 is before 0.10."""
    assert version_key(older) < version_key(newer)


def test_what_is_no_version_is_refused() -> None:
    """With an example of one."""
    with pytest.raises(ConfigError, match=r"such as 0\.32\.0"):
        version_key("latest")


def section(**changes: Any) -> dict[str, Any]:
    """A framework with one flag."""
    flag = {"setting": "max_num_seqs", "name": "--n", "reason": "r", "source": "https://x"}
    table = {"title": "T", "checked": "1.0", "policies": ["continuous"], "start": "t", "policy_source": "https://x"}
    return table | {"flag": [flag | changes]}


def test_until_ends_before_the_version_named() -> None:
    """Since and until bound the versions that have a flag."""
    entry = Framework.read("t", section(since="1.0", until="2.0")).flags[0]

    assert [entry.covers(version) for version in ("0.9", "1.0", "1.9", "2.0")] == [False, True, True, False]


@pytest.mark.parametrize("changes", [{"sinse": "1.0"}, {"value": "halved"}])
def test_a_misspelt_entry_is_refused(changes: dict[str, Any]) -> None:
    """A key or a conversion that nobody knows."""
    with pytest.raises(ConfigError):
        Framework.read("t", section(**changes))


def test_another_format_is_refused() -> None:
    """The file says which it is."""
    with pytest.raises(ConfigError, match="has format 2"):
        parse("format = 2")
