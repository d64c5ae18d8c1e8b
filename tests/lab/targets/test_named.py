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
