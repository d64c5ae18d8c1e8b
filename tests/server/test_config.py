from typing import Any

import pytest

from chairlift.core.errors import ConfigError
from chairlift.server.config import ServerConfig


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"port": 70_000}, "--port is 70000"),
        ({"port": -1}, "--port is -1"),
        ({"max_body_size": 0}, "--max-body-size is 0"),
        ({"max_choices": 0}, "--max-choices is 0"),
        ({"drain_timeout": -1}, "--drain-timeout is -1 ns"),
        ({"status_interval": 10**8}, "--status-interval is shorter than a second"),
        ({"api_key": ""}, "--api-key is empty"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_its_flag(settings: dict[str, Any], said: str) -> None:
    """The message names the flag and the value."""
    with pytest.raises(ConfigError, match=said):
        ServerConfig(**settings)


def test_the_defaults_keep_to_this_machine() -> None:
    """Nobody else is let in, and no route that changes anything is open, unless asked for."""
    config = ServerConfig()

    assert config.host == "127.0.0.1"
    assert not config.enable_admin
