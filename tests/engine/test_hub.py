from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from chairlift.core.errors import ModelError
from chairlift.engine.hub import locate

Patch = Callable[[str, Callable[..., str]], None]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Patch:
    """Replaces one function of the hub's library."""
    return lambda name, function: monkeypatch.setattr(huggingface_hub, name, function)


def test_what_is_on_this_machine_is_never_sought_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that exists is the model, even where it looks like a name on the hub."""
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "name").mkdir()
    monkeypatch.chdir(tmp_path)

    assert locate("owner/name") == Path("owner/name")


def test_a_name_on_the_hub_is_fetched_without_what_is_not_needed(tmp_path: Path, hub: Patch) -> None:
    """Settings, tokenizer and safetensors are asked for, of the wished revision; offline only the cache is."""
    asked: dict[str, Any] = {}

    def snapshot(name: str, **options: Any) -> str:
        asked.update(options, name=name)
        return str(tmp_path)

    hub("snapshot_download", snapshot)

    assert locate("owner/name", "v1") == tmp_path
    assert (asked["name"], asked["revision"], asked["local_files_only"]) == ("owner/name", "v1", True)
    assert set(asked["allow_patterns"]) == {"*.json", "*.safetensors", "*.jinja"}


def test_one_gguf_file_of_a_repository(tmp_path: Path, hub: Patch) -> None:
    """OWNER/NAME/FILE.gguf is that file, in folders or not."""
    asked: list[tuple[str, str]] = []

    def download(name: str, file: str, **options: Any) -> str:
        asked.append((name, file))
        return str(tmp_path / file)

    hub("hf_hub_download", download)

    assert locate("owner/name/model-Q4_0.gguf") == tmp_path / "model-Q4_0.gguf"
    assert locate("owner/name/q4/model.GGUF") == tmp_path / "q4/model.GGUF"
    assert asked == [("owner/name", "model-Q4_0.gguf"), ("owner/name", "q4/model.GGUF")]


@pytest.mark.parametrize("model", ["no-such-file", "./a/b", "/no/such/folder", "a/b/c"])
def test_what_is_neither_path_nor_name_says_where_it_was_sought(model: str) -> None:
    """The message has the absolute path and what would do."""
    with pytest.raises(ModelError, match=r"there is no model at /.*GGUF file"):
        locate(model)


def test_offline_says_so_and_how_to_fetch_it() -> None:
    """HF_HUB_OFFLINE is respected: no connection is tried, and the message has the way out."""
    with pytest.raises(ModelError, match=r"not in the hub's cache .*HF_HUB_OFFLINE is set.*hf download owner/nowhere"):
        locate("owner/nowhere")


def response(status: int) -> httpx2.Response:
    """An answer of the hub."""
    return httpx2.Response(status, request=httpx2.Request("GET", "https://example.org"))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.LocalEntryNotFoundError("x"), "the hub cannot be reached"),
        (errors.GatedRepoError("x", response=response(403)), "licence"),
        (
            errors.RepositoryNotFoundError("x", response=response(404)),
            "no model owner/name on the hub, or it is private",
        ),
        (errors.RevisionNotFoundError("x", response=response(404)), "no revision 'v9' on the hub: check --revision"),
        (httpx2.ConnectError("cable cut"), "cannot be fetched from the hub: cable cut"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
    ids=["unreachable", "gated", "missing", "revision", "cut", "full disk"],
)
def test_whatever_goes_wrong_names_the_way_out(
    error: Exception, words: str, hub: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure of the hub becomes one sentence of ours."""

    def fail(*args: Any, **options: Any) -> str:
        raise error

    hub("snapshot_download", fail)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)

    with pytest.raises(ModelError, match=words):
        locate("owner/name", "v9")


def test_a_file_that_a_repository_lacks_is_named(hub: Patch) -> None:
    """A wrong file name is told apart from a wrong repository."""

    def fail(*args: Any, **options: Any) -> str:
        raise errors.RemoteEntryNotFoundError("x", response=response(404))

    hub("hf_hub_download", fail)

    with pytest.raises(ModelError, match=r"owner/name has no file x\.gguf on the hub"):
        locate("owner/name/x.gguf")
