"""Where a model's files are: on this machine, or on the Hugging Face hub by name."""

from __future__ import annotations

import re
from pathlib import Path

from chairlift.core.errors import ModelError

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_GGUF = re.compile(rf"({_NAME.pattern})/(.+\.gguf)", re.IGNORECASE)
_FILES = ("*.json", "*.safetensors", "*.jinja")
"""What a Hugging Face directory needs; weights in other formats stay where they are."""


def locate(model: str, revision: str | None = None) -> Path:
    """The file or folder of a model; one that is on the hub is fetched unless the hub's cache has it.

    Args:
        model: a path, or OWNER/NAME, or OWNER/NAME/FILE.gguf. What exists on this machine is never sought on the hub.
        revision: branch, tag or commit on the hub.

    Raises:
        ModelError: it is nowhere; the message says where it was sought and how to get it.
    """
    path = Path(model).expanduser()
    if path.exists():
        return path
    if match := _GGUF.fullmatch(model):
        return _fetch(match[1], revision, match[2])
    if _NAME.fullmatch(model):
        return _fetch(model, revision, None)
    raise ModelError(
        f"there is no model at {path.absolute()}: give a GGUF file, a folder with config.json, tokenizer.json and "
        "safetensors, or a name on the Hugging Face hub (OWNER/NAME)."
    )


def _fetch(name: str, revision: str | None, file: str | None) -> Path:
    # Imported here: a model on this machine does without.
    import huggingface_hub  # noqa: PLC0415
    from huggingface_hub import constants, errors  # noqa: PLC0415

    offline = constants.is_offline_mode()
    try:
        if file is not None:
            return Path(huggingface_hub.hf_hub_download(name, file, revision=revision, local_files_only=offline))
        folder = huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=list(_FILES), local_files_only=offline
        )
        return Path(folder)
    except errors.LocalEntryNotFoundError as error:
        why = "HF_HUB_OFFLINE is set" if offline else "the hub cannot be reached"
        raise ModelError(
            f"{name} is not in the hub's cache ({constants.HF_HUB_CACHE}) and {why}: fetch it where there is a network "
            f"(`hf download {name}`), or give the path of a model on this machine."
        ) from error
    except errors.GatedRepoError as error:
        message = f"{name} asks for its licence to be accepted: do so on its page, then run `hf auth login`."
        raise ModelError(message) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"there is no model {name} on the hub, or it is private (then run `hf auth login`); and no such path here."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelError(f"{name} has no revision {revision!r} on the hub: check --revision.") from error
    except errors.EntryNotFoundError as error:
        raise ModelError(f"{name} has no file {file} on the hub: check the name on its page.") from error
    except Exception as error:  # a full disk, or whatever its HTTP library raises half-way
        raise ModelError(f"{name} cannot be fetched from the hub: {error}") from error
