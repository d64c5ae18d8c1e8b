"""A target from what a user writes on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from chairlift.core.errors import ConfigError
from chairlift.lab.targets.base import Target
from chairlift.lab.targets.model import ModelTarget
from chairlift.lab.targets.simulated import SIM, SimulatedTarget
from chairlift.lab.targets.url import UrlSettings, UrlTarget
from chairlift.text.chat import ChatTemplate
from chairlift.text.tokenizer import Tokenizer

_HOST_AND_PORT: Final = re.compile(r"[\w.-]+:\d{1,5}(/v1/?)?")


def is_url(name: str) -> bool:
    """Whether it names a server."""
    return name.startswith(("http://", "https://"))


def is_simulated(name: str) -> bool:
    """Whether it names a simulated device."""
    return name.startswith(SIM)


def target_named(
    name: str,
    *,
    server: UrlSettings | None = None,
    tokenizer: Tokenizer | None = None,
    template: ChatTemplate | None = None,
    engine: Mapping[str, Any] | None = None,
) -> Target:
    """A server by its URL, a simulated device by `sim:DEVICE`; anything else is a model, which is loaded.

    Args:
        name: the URL, the device or the model.
        server: for a URL: how it is talked to.
        tokenizer: for a URL: see UrlTarget.
        template: for a URL: see UrlTarget.
        engine: for a model or a simulated device: see ModelTarget.load and SimulatedTarget.load.

    Raises:
        ConfigError, ModelError, OutOfDeviceMemory: as UrlTarget, SimulatedTarget.load and ModelTarget.load.
    """
    if is_url(name):
        return UrlTarget(name, server, tokenizer=tokenizer, template=template)
    scheme, separator, _ = name.partition("://")
    if separator:
        raise ConfigError(f"{name!r} begins with {scheme}://; a server's URL begins with http:// or https://.")
    if _HOST_AND_PORT.fullmatch(name):
        raise ConfigError(f"{name!r} looks like a server's address: write http://{name}.")
    if not name:
        raise ConfigError("the target is empty: name a server's URL, a model, or sim:DEVICE/MODEL.")
    if is_simulated(name):
        return SimulatedTarget.load(name, engine)
    return ModelTarget.load(name, engine)
