"""`chairlift serve MODEL`: the OpenAI-compatible server."""

from __future__ import annotations

import argparse
import os

from chairlift.cli.engine_flags import add_engine_flags, engine_config
from chairlift.cli.flags import add_flags, build
from chairlift.cli.parser import Parser
from chairlift.server.config import ServerConfig

KEY_VARIABLE = "CHAIRLIFT_API_KEY"


def configure(parser: Parser) -> None:
    """The model, and a flag for every setting of server, device and scheduler."""
    add_engine_flags(parser)
    add_flags(parser, ServerConfig, "server")


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes.

    Raises:
        ChairliftError: settings that do not go together, no such model, too little memory, an address that is taken.
    """
    settings = {} if hasattr(arguments, "api_key") else {"api_key": os.environ.get(KEY_VARIABLE) or None}
    config = build(ServerConfig, arguments, **settings)
    engine = engine_config(arguments)

    from chairlift.server.start import serve

    serve(engine, config)
    return 0
