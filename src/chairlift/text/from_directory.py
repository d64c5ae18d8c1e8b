"""A tokenizer from a Hugging Face directory: tokenizer.json, and the ids that the JSON files beside it name."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import tokenizers

from chairlift.core.errors import TokenizerError
from chairlift.text.special import SpecialTokens

TOKENIZER: Final = "tokenizer.json"
TOKENIZER_CONFIG: Final = "tokenizer_config.json"
GENERATION_CONFIG: Final = "generation_config.json"
CONFIG: Final = "config.json"

_OLDER_FORMS: Final = ("tokenizer.model", "vocab.json", "spiece.model", "tekken.json")


def load_backend(folder: Path) -> tokenizers.Tokenizer:
    """Read tokenizer.json. Truncation and padding that it may ask for are switched off: prompts are never cut.

    Raises:
        TokenizerError: the file is missing or unreadable; the message says how to make one.
    """
    path = folder / TOKENIZER
    if not path.is_file():
        older = [name for name in _OLDER_FORMS if (folder / name).is_file()]
        found = f" ({' and '.join(older)} is there, an older form)" if older else ""
        raise TokenizerError(
            f"{path} is missing{found}. Copy it from where the model came from, or write it with transformers: "
            f"AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
        )
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises the bare class
        raise TokenizerError(f"{path} cannot be read: {error}. Copy it again from where the model came from") from error
    backend.no_truncation()
    backend.no_padding()
    return backend


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, empty where there is no such file.

    Raises:
        TokenizerError: the file is no JSON object.
    """
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{path} cannot be read: {error}. Copy it again from where the model came from") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} is no JSON object. Copy it again from where the model came from")
    return value


@dataclass(frozen=True, slots=True)
class NamedTokens:
    """The tokens with a role, and the strings that templates know them by."""

    special: SpecialTokens
    strings: Mapping[str, str] = field(default_factory=dict)
    """`bos_token`, `eos_token` and so on, as tokenizer_config.json writes them."""


def named_tokens(folder: Path, backend: tokenizers.Tokenizer) -> NamedTokens:
    """Gather the special tokens from the files that may name them.

    An answer ends at any token that tokenizer_config.json, generation_config.json or config.json calls eos: chat
    models keep their end of turn in the second and an older end of text in the others.

    Raises:
        TokenizerError: a file is no JSON object, or names a token that tokenizer.json lacks.
    """
    tokenizer_config = read_json(folder / TOKENIZER_CONFIG)
    config = read_json(folder / CONFIG)
    generation = read_json(folder / GENERATION_CONFIG)
    strings = {key: text for key in _ROLES if (text := _token_string(tokenizer_config.get(key)))}
    ids: dict[str, int | None] = {}
    for key in _ROLES:
        if key in strings:
            ids[key] = backend.token_to_id(strings[key])
            if ids[key] is None:
                raise TokenizerError(
                    f"{folder / TOKENIZER_CONFIG} calls {strings[key]!r} the {key}, but {TOKENIZER} has no such token: "
                    "the two files belong to different models"
                )
        else:
            declared = _ids(generation.get(f"{key}_id")) or _ids(config.get(f"{key}_id"))
            ids[key] = declared[0] if declared else None
    ends = {*_ids(generation.get("eos_token_id")), *_ids(config.get("eos_token_id"))}
    if (eos := ids["eos_token"]) is not None:
        ends.add(eos)
    for key in _ROLES:
        if key not in strings and (found := ids[key]) is not None and (text := backend.id_to_token(found)):
            strings[key] = text
    special = SpecialTokens(
        bos_id=ids["bos_token"],
        eos_id=eos,
        unk_id=ids["unk_token"],
        pad_id=ids["pad_token"],
        end_ids=frozenset(ends),
    )
    return NamedTokens(special, strings)


_ROLES: Final = ("bos_token", "eos_token", "unk_token", "pad_token")


def _token_string(value: object) -> str | None:
    """A token as tokenizer_config.json writes it: a string, or an object with its content."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _ids(value: object) -> list[int]:
    """One id, several, or none, as the configuration files write them."""
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int):
        return [value]
    return [entry for entry in value if isinstance(entry, int)] if isinstance(value, list) else []
