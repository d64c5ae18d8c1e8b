"""The server's own settings. Each field is a flag of `chairlift serve`."""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.core.config import flag
from chairlift.core.errors import ConfigError
from chairlift.core.request import Nanoseconds


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where the server listens, whom it lets in, how it goes."""

    host: str = "127.0.0.1"
    """Address to listen on. 0.0.0.0 lets other machines in: set --api-key with it."""

    port: int = 8000
    """Port to listen on. 0: any free one; the start-up message has it."""

    served_model_name: tuple[str, ...] = ()
    """Names under which requests may ask for the model, the first one is shown. Default: the model's file or folder
    name."""

    api_key: str | None = None
    """Key that requests to /v1 and /admin must bring (Authorization: Bearer KEY). Also read from the environment
    variable CHAIRLIFT_API_KEY, which other users of the machine cannot see. Default: none is asked for."""

    enable_admin: bool = False
    """Open POST /admin/policy, which switches the batching policy of the running server. With --api-key for whoever has
    the key, without it for clients on this machine only."""

    max_body_size: int = 8 << 20
    """Bytes of the longest request body; a longer one is refused before it is read to its end."""

    max_choices: int = 128
    """Most answers one request may ask for: prompts times n."""

    drain_timeout: Nanoseconds = 30 * 10**9
    """After SIGTERM: how long running requests may go on before they are ended with an error. New ones get 503 at once.
    A second signal ends everything at once."""

    status_interval: Nanoseconds = 10 * 10**9
    """Least time between two status lines in the log while there is work; at least 1s. 0: no status lines."""

    def __post_init__(self) -> None:
        """Raises ConfigError on the first setting that cannot be."""
        if not 0 <= self.port <= 65_535:
            raise ConfigError(f"--port is {self.port}; it must be between 0 and 65535.")
        for name in ("max_body_size", "max_choices"):
            if (value := getattr(self, name)) < 1:
                raise ConfigError(f"{flag(name)} is {value}; it must be at least 1.")
        if self.drain_timeout < 0:
            raise ConfigError(f"--drain-timeout is {self.drain_timeout} ns; it must not be negative.")
        if self.status_interval and self.status_interval < 10**9:
            raise ConfigError("--status-interval is shorter than a second; use 1s or more, or 0 for no status lines.")
        if self.api_key == "":
            raise ConfigError("--api-key is empty: leave it out to ask for none, or give at least one character.")
