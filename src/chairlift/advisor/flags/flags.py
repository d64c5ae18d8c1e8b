"""Settings said to a framework: flags_for()."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from chairlift.advisor.flags.convert import CONVERSIONS, SWITCHES, WORDS, CannotConvert
from chairlift.advisor.flags.mapping import Entry, Framework, Place, frameworks
from chairlift.advisor.flags.settings import MemorySettings, Settings
from chairlift.core.config import SchedulerConfig, flag
from chairlift.core.errors import ConfigError

ALIASES: Final = {
    "trtllm": "tensorrt-llm",
    "tensorrt_llm": "tensorrt-llm",
    "llamacpp": "llama.cpp",
    "tfs": "tf-serving",
}


_DURATIONS: Final = ("max_wait", "max_queue_delay", "target_itl")


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag, or one line of a configuration file."""

    setting: str
    """Our field."""
    name: str
    """Theirs; in a file its path, with dots."""
    value: str
    """Empty: a switch that has none."""
    place: Place
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class Unexpressed:
    """A setting that is lost."""

    setting: str
    value: str
    why: str
    source: str


@dataclass(frozen=True, slots=True)
class FrameworkFlags:
    """Everything that is said, and what cannot be."""

    framework: Framework
    version: str
    flags: tuple[Flag, ...]
    unexpressed: tuple[Unexpressed, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "framework": self.framework.name,
            "version": self.version,
            "checked": self.framework.checked,
            "flags": [{name: getattr(one, name) for name in one.__slots__} for one in self.flags],
            "unexpressed": [{name: getattr(one, name) for name in one.__slots__} for one in self.unexpressed],
        }


def framework_names() -> tuple[str, ...]:
    """Those that are known."""
    return tuple(frameworks())


def flags_for(
    framework: str,
    config: SchedulerConfig,
    memory: MemorySettings | None = None,
    *,
    version: str | None = None,
    reasons: Mapping[str, str] | None = None,
) -> FrameworkFlags:
    """Say settings to a framework.

    Args:
        framework: a name of framework_names(), or an alias.
        config: settings of batching; those that do not matter under its policy are left out.
        memory: settings of memory and devices.
        version: of the framework; None: the one that the table was checked with.
        reasons: setting -> why it has its value, put before the general reason.

    Raises:
        ConfigError: nobody knows the framework, or the version is none.
    """
    found = _find(framework)
    said_to = version or found.checked
    settings = Settings(config, memory or MemorySettings())
    flags: list[Flag] = []
    lost: list[Unexpressed] = []
    if config.policy not in found.policies:
        lost.append(
            Unexpressed(
                "policy",
                config.policy,
                f"{found.title} does {' or '.join(found.policies)} batching; what belongs to {config.policy} batching "
                "alone is left out",
                found.policy_source,
            )
        )
    for setting, value in settings.values().items():
        _say(found, said_to, settings, (setting, value), flags, lost)
    if reasons:
        flags = [_with_reason(one, reasons.get(one.setting)) for one in flags]
    return FrameworkFlags(found, said_to, tuple(flags), tuple(lost))


def _find(name: str) -> Framework:
    known = frameworks()
    wanted = ALIASES.get(name.lower(), name.lower())
    if wanted not in known:
        near = difflib.get_close_matches(wanted, known, n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise ConfigError(f"--for is {name!r}{meant}; known are {', '.join(known)}.")
    return known[wanted]


def _say(
    framework: Framework,
    version: str,
    settings: Settings,
    setting: tuple[str, Any],
    flags: list[Flag],
    lost: list[Unexpressed],
) -> None:
    """One setting: as flags, as something lost, or as nothing where nothing need be said."""
    name, value = setting
    policy = settings.scheduler.policy
    entries = [one for one in framework.flags if one.setting == name and (not one.policies or policy in one.policies)]
    there = [one for one in entries if one.covers(version)]
    for entry in there:
        try:
            written = _flag(entry, value, settings)
        except CannotConvert as error:
            lost.append(Unexpressed(name, _shown(name, value, settings), str(error), entry.source))
        else:
            if written is not None:
                flags.append(written)
    if entries and not there and value is not None and value not in entries[0].omit:
        since = entries[0].since or "another version"
        why = f"{framework.title} {version} has no {entries[0].name}; it came with {since}"
        lost.append(Unexpressed(name, _shown(name, value, settings), why, entries[0].source))
    lost += [
        Unexpressed(name, _shown(name, value, settings), lack.why, lack.source)
        for lack in framework.lacks
        if lack.setting == name
        and (not lack.policies or policy in lack.policies)
        and value is not None
        and value not in lack.unless
    ]


def _flag(entry: Entry, value: Any, settings: Settings) -> Flag | None:
    if value is None:
        return None if entry.none is None else _of(entry, entry.name, entry.none)
    if value in entry.omit:
        return None
    if entry.value in SWITCHES:
        name = entry.name if bool(value) == (entry.value == "switch") else entry.off
        return None if name is None else _of(entry, name, "")
    if entry.value == WORDS:
        if str(value) not in entry.words:
            known = ", ".join(entry.words)
            raise CannotConvert(f"{entry.name} has words for {known} only")
        return _of(entry, entry.name, entry.words[str(value)])
    return _of(entry, entry.name, CONVERSIONS[entry.value](value, settings))


def _of(entry: Entry, name: str, value: str) -> Flag:
    return Flag(entry.setting, name, value, entry.place, entry.reason, entry.source)


def _shown(setting: str, value: Any, settings: Settings) -> str:
    """A value for people: durations with a unit, sizes and lists as they are given."""
    kind = "duration" if setting in _DURATIONS else "commas" if isinstance(value, tuple) else "same"
    return CONVERSIONS[kind](value, settings)


def _with_reason(one: Flag, why: str | None) -> Flag:
    if why is None:
        return one
    return Flag(one.setting, one.name, one.value, one.place, f"{why}; {one.reason}", one.source)


def setting_name(setting: str) -> str:
    """A setting as our own flag, for people."""
    return flag("kv_cache_dtype" if setting == "kv_dtype" else setting)
