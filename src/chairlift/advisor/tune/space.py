"""The parameters of each policy and the values that are tried: powers of two and what lies between, as far as load and
device allow.

The share of memory is not among them: it is a term of a sum, and more of it only ever makes the pool larger. What half
and double of it would do is told all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from chairlift.advisor.choose.search import SIZE_SETTING
from chairlift.advisor.evaluate.rounds import Rounds
from chairlift.advisor.evaluate.run import Problem
from chairlift.core.config import PolicyName, SchedulerConfig
from chairlift.core.errors import ConfigError

SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
BUDGETS: Final = (16, 32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
_MS: Final = 1_000_000
DELAYS: Final = tuple(_MS * ms for ms in (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000))
PREFERRED: Final = (0, 2, 4)
"""Preferred batch sizes: none, or max_batch_size over this."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One setting and its values, in order."""

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """What is searched."""

    policy: PolicyName
    parameters: tuple[Parameter, ...]
    longest: int
    """max_model_len: a prompt that is not chunked is computed in one step."""

    def settings(self, places: Mapping[str, int]) -> dict[str, Any]:
        """From the place of each parameter's value to settings by name."""
        found: dict[str, Any] = {"policy": self.policy}
        for parameter in self.parameters:
            found[parameter.name] = parameter.values[places[parameter.name]]
        size = SIZE_SETTING[self.policy]
        if "max_num_batched_tokens" in found and size in found:
            # A step with more rows than tokens cannot be; nothing is learned from asking for one.
            found["max_num_batched_tokens"] = max(found["max_num_batched_tokens"], found[size])
        if found.get("enable_chunked_prefill") is False:
            found["max_num_batched_tokens"] = max(found.get("max_num_batched_tokens", 0), self.longest)
        part = found.pop("preferred", None)
        if part is not None:
            largest = found.get("max_batch_size", 0)
            found["preferred_batch_sizes"] = (largest // part,) if part and largest // part else ()
        return found

    def places(self, settings: Mapping[str, Any]) -> dict[str, int]:
        """The places whose values are nearest to these settings."""
        found = {}
        for parameter in self.parameters:
            wanted = settings.get(parameter.name)
            values = parameter.values
            if wanted is None or isinstance(wanted, bool) or parameter.name == "preferred":
                found[parameter.name] = values.index(wanted) if wanted in values else 0
            else:
                found[parameter.name] = min(range(len(values)), key=lambda place: abs(values[place] - wanted))
        return found


def space_of(problem: Problem, load: Rounds, policy: PolicyName) -> Space:
    """What is searched for a load on a device: whatever the user has not decided.

    Raises:
        ConfigError: nothing is left.
    """
    found = tuple(one for one in _parameters(problem, load, policy) if one.name not in problem.fixed)
    if not found:
        raise ConfigError(f"every parameter of {policy} batching is given: leave one out to have it tuned.")
    return Space(policy, found, int(problem.settings["max_model_len"]))


def defaults(problem: Problem, policy: PolicyName) -> dict[str, Any]:
    """What a server would run with if nobody set anything: SchedulerConfig's own values."""
    config = SchedulerConfig()
    names = [SIZE_SETTING[policy], "max_num_batched_tokens", *(["max_queue_delay"] if policy == "dynamic" else [])]
    return {"policy": policy} | {name: getattr(config, name) for name in names if name not in problem.fixed}


def _parameters(problem: Problem, load: Rounds, policy: PolicyName) -> Iterator[Parameter]:
    valid = problem.device.valid
    budgets = _up_to(BUDGETS, valid.tokens)
    most = min(load.most_at_once(policy), valid.rows, budgets[-1])
    yield Parameter(SIZE_SETTING[policy], _up_to(SIZES, most))
    yield Parameter("max_num_batched_tokens", budgets)
    if policy == "dynamic":
        yield Parameter("max_queue_delay", DELAYS)
        if "preferred_batch_sizes" not in problem.fixed:
            yield Parameter("preferred", PREFERRED)
    if policy == "continuous":
        yield Parameter("prefill_interval", (1, 2, 4, 8))
        yield Parameter("watermark", (0.0, 0.01, 0.05, 0.1))
        if budgets[-1] >= int(problem.settings["max_model_len"]) and "max_num_batched_tokens" not in problem.fixed:
            yield Parameter("enable_chunked_prefill", (True, False))


def _up_to(values: tuple[int, ...], most: int) -> tuple[int, ...]:
    return (*(value for value in values if value < most), most)
