import re
from pathlib import Path

import pytest

from chairlift.core.errors import ConfigError, ModelError
from chairlift.lab.targets.named import is_url, target_named
from chairlift.lab.targets.url import UrlSettings, UrlTarget


@pytest.mark.parametrize(
    ("name", "url"), [("http://h:1", True), ("https://h", True), ("model.gguf", False), ("h:1", False)]
)
def test_a_server_is_what_has_a_scheme(name: str, url: bool) -> None:  # noqa: FBT001 - the expectation
    """Anything else is a model."""
    assert is_url(name) is url


def test_a_url_is_a_server() -> None:
    """With its settings."""
    target = target_named("http://h:1/v1", server=UrlSettings(api="chat"))

    assert isinstance(target, UrlTarget)
    assert (target.url, target.settings.api) == ("http://h:1", "chat")


def test_a_model_that_is_nowhere_is_said_to_be() -> None:
    """By the loader's own words."""
    with pytest.raises(ModelError):
        target_named("/nowhere/model.gguf")


def test_a_setting_that_there_is_not_is_refused(tmp_path: Path) -> None:
    """Before anything is loaded."""
    with pytest.raises(ConfigError, match="batchsize"):
        target_named(str(tmp_path), engine={"batchsize": 4})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "the target is empty"),
        ("ftp://host", "begins with ftp://; a server's URL begins with http:// or https://"),
        ("localhost:8000", "looks like a server's address: write http://localhost:8000"),
        ("10.0.0.1:8000/v1", "write http://10.0.0.1:8000/v1"),
        ("sim:", "names no model: write sim:DEVICE/MODEL, such as sim:h100-sxm/llama-3.1-8b"),
        ("sim:l4", "such as sim:l4/llama-3.1-8b"),
        ("http://host:99999", "with a port from 1 to 65535"),
        ("http://host:port", "is no URL of a server"),
        ("http://[::1", "is no URL of a server"),
    ],
)
def test_a_name_that_is_none_is_told_what_would_do(name: str, message: str) -> None:
    """In the words of what was probably meant, before a model is looked for under it."""
    with pytest.raises(ConfigError, match=re.escape(message)):
        target_named(name)
