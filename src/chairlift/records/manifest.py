"""What a run was: model, settings, load, machine and versions, beside its records."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, Self, get_args

from chairlift.core.errors import RecordError
from chairlift.records.client import CLIENT_SCHEMA_VERSION
from chairlift.records.schema import SCHEMA_VERSION

MANIFEST = "manifest.json"
Status = Literal["running", "complete"]
_KINDS: Final[Mapping[str, tuple[str, type | tuple[type, ...]]]] = {
    "str": ("text", str),
    "Status": ("text", str),
    "int": ("a whole number", int),
    "int | None": ("a whole number", (int, NoneType)),
    "float": ("a number", (int, float)),
    "Mapping": ("an object", dict),
}
"""What JSON has for a field's type."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The head of a run's folder."""

    source: str
    """What made the records: engine, simulator or client."""
    started: str
    """Wall-clock time of the start, ISO 8601 with offset."""
    clock_zero: float
    """Seconds since 1970 at which the records' clock read zero; 0 for virtual time."""
    chairlift: str
    """Version of Chairlift."""
    schema: int = SCHEMA_VERSION
    """Version of the record schema."""
    client_schema: int | None = None
    """Version of the schema of a client's records; None where there are none."""
    status: Status = "running"
    """complete once the run was closed; a run that was killed stays running."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Name, path, and the sizes that decide the work of a step."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Every setting of scheduler and device, defaults included."""
    capacity: Mapping[str, Any] = field(default_factory=dict)
    """The KV pool: block size, usable blocks, bytes of a block."""
    load: Mapping[str, Any] = field(default_factory=dict)
    """What was asked of it: name, seed, and the distributions of lengths and arrivals."""
    target: Mapping[str, Any] = field(default_factory=dict)
    """Of a client's run: what it was put to, as the target says of itself."""
    git: Mapping[str, Any] = field(default_factory=dict)
    """Commit, branch and whether something was changed, where the run was started in a git work tree."""
    definitions: Mapping[str, str] = field(default_factory=dict)
    """What each figure in `results` means, by name."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """See machine()."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """See versions()."""
    results: Mapping[str, Any] = field(default_factory=dict)
    """Ledger and counters at the end, and whatever the writer adds."""

    def write(self, folder: Path) -> None:
        """Put it into the folder, whole or not at all.

        Raises:
            RecordError: the folder cannot be written.
        """
        try:
            beside = folder / f".{MANIFEST}.new"
            beside.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
            beside.replace(folder / MANIFEST)
        except OSError as error:
            raise RecordError(f"{folder / MANIFEST} cannot be written: {error}") from error

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The manifest of a run's folder.

        Raises:
            RecordError: there is none, it is damaged, or it is of a schema that this version does not know.
        """
        path = folder / MANIFEST
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise RecordError(f"{folder} is no run: it has no {MANIFEST}.") from error
        except OSError as error:
            raise RecordError(f"{path} cannot be read: {error.strerror}.") from error
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{path} is damaged: it is no JSON ({error}).") from error
        manifest = cls(**_checked(raw, path))
        if manifest.schema > SCHEMA_VERSION:
            raise RecordError(
                f"{path} has records of schema {manifest.schema}; this version of Chairlift reads up to "
                f"{SCHEMA_VERSION}: upgrade it."
            )
        if (manifest.client_schema or 0) > CLIENT_SCHEMA_VERSION:
            raise RecordError(
                f"{path} has a client's records of schema {manifest.client_schema}; this version of Chairlift reads up "
                f"to {CLIENT_SCHEMA_VERSION}: upgrade it."
            )
        return manifest


def _checked(raw: Any, path: Path) -> dict[str, Any]:
    """The fields that are known here, each of its kind: whoever reads a manifest relies on it."""
    if not isinstance(raw, dict):
        raise RecordError(f"{path} is damaged: it holds no JSON object.")
    known = {}
    for one in fields(Manifest):
        if one.name not in raw:
            if one.default is MISSING and one.default_factory is MISSING:
                raise RecordError(f"{path} is damaged: it has no {one.name}.")
            continue
        words, kinds = _KINDS[str(one.type).partition("[")[0]]
        value = raw[one.name]
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise RecordError(f"{path} is damaged: {one.name} is {value!r:.60}; it must be {words}.")
        known[one.name] = value
    if known.get("status", "running") not in get_args(Status):
        raise RecordError(f"{path} is damaged: status is {known['status']!r}; it is running or complete.")
    return known


def machine(root: Path = Path("/")) -> dict[str, Any]:
    """What the run ran on: system, processor, CPUs the process may use, memory."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "processor": _first(root / "proc/cpuinfo", "model name") or platform.processor(),
        "cpus": cpus,
        "memory": _first(root / "proc/meminfo", "MemTotal"),
        "python": platform.python_version(),
    }


def versions(packages: Iterable[str] = ("openvino", "numpy", "tokenizers", "pyarrow")) -> dict[str, str]:
    """Installed versions of the packages that can change a result."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _first(path: Path, key: str) -> str:
    """The value of the first line `key : value` of a file, empty where there is none."""
    try:
        with path.open(encoding="utf-8") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")
    except OSError:
        return ""


def plain(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table for a manifest: values that JSON has as they are, others as text."""
    return {
        key: plain(value)
        if isinstance(value, Mapping)
        else value
        if value is None or isinstance(value, bool | int | float | str | list | tuple)
        else str(value)
        for key, value in table.items()
    }
