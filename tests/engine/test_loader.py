"""Loading, on a tiny random model of the real runner with a tokenizer of ASCII characters."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from chairlift.core.errors import ConfigError, ModelError, TokenizerError
from chairlift.core.request import FinishReason
from chairlift.engine.config import EngineConfig
from chairlift.engine.llm import LLM
from chairlift.engine.loader import LoadedModel, load_model
from chairlift.engine.params import SamplingParams
from tests.engine.tiny import byte_letters

TINY = Path(__file__).parents[1] / "fixtures" / "models" / "llama-tied"
SETTINGS = {"threads": 1, "num_kv_blocks": 16, "max_num_seqs": 4, "max_num_batched_tokens": 64}


def with_tokenizer(folder: Path, size: int = 128) -> Path:
    """The tiny model with a tokenizer of so many ids: ASCII characters, but `<end>` as number 2."""
    shutil.copytree(TINY, folder)
    vocabulary = {letter: n for n, letter in enumerate(byte_letters()[:size]) if n != 2}
    backend = tokenizers.Tokenizer(models.BPE(vocab={**vocabulary, "<end>": 2}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<end>", special=True)])
    backend.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole Hugging Face directory, without a chat template."""
    return with_tokenizer(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Iterator[LoadedModel]:
    """The tiny model on the device."""
    model = load_model(EngineConfig.of(str(folder), SETTINGS))
    yield model
    model.runner.close()


def test_a_directory_becomes_an_engine(loaded: LoadedModel, folder: Path) -> None:
    """Name, tokenizer, memory, and a maximum length fitted to what the model was trained for."""
    assert loaded.name == "tiny-llama"
    assert loaded.path == folder
    assert loaded.tokenizer.special.end_ids == {2}
    assert loaded.chat_template is None
    assert loaded.scheduler.max_model_len == 256
    assert "16 blocks" in loaded.memory


def test_a_length_that_was_asked_for_is_not_changed_in_silence(folder: Path) -> None:
    """More positions than the model was trained for are refused with the most that would do."""
    with pytest.raises(ConfigError, match="lower it to 256"):
        load_model(EngineConfig.of(str(folder), {**SETTINGS, "max_model_len": 300}))


def test_the_llm_loads_by_path_with_settings_by_name(folder: Path, tmp_path: Path) -> None:
    """From a path and keyword settings to an answer, with a chat template from a file."""
    template = tmp_path / "template.jinja"
    template.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)

    with LLM(str(folder), **SETTINGS, chat_template=template, policy="dynamic") as llm:
        (plain,) = llm.generate("hello", params)
        (chat,) = llm.chat([{"role": "user", "content": "hello"}], params)
        policy = llm.engine.config.policy

    assert policy == "dynamic"
    assert plain.token_ids == chat.token_ids
    assert len(plain.token_ids) == 6
    assert plain.finish_reason is FinishReason.LENGTH


def test_a_model_that_is_nowhere_is_named() -> None:
    """Before anything is loaded."""
    with pytest.raises(ModelError, match="there is no model at"):
        load_model(EngineConfig.of("/no/such/model", {}))


def test_a_model_without_a_tokenizer_is_refused_before_the_device_is_touched() -> None:
    """The message says what is missing."""
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        load_model(EngineConfig.of(str(TINY), SETTINGS))


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    """Ids without a row in the embedding would crash a step; the sizes are told."""
    other = with_tokenizer(tmp_path / "mixed", size=200)

    with pytest.raises(ModelError, match="tokenizer of 200 tokens and weights for 128"):
        load_model(EngineConfig.of(str(other), SETTINGS))
