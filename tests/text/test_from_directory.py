import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import processors

from chairlift.core.errors import TokenizerError
from chairlift.text.tokenizer import Tokenizer
from tests.text.vocabularies import FIXTURE, byte_level, sentencepiece, space_only_at_start


def write(folder: Path, tokenizer: Tokenizer | None = None, **files: dict[str, Any]) -> Path:
    """A Hugging Face directory: tokenizer.json of a tokenizer, and JSON files by their names without the ending."""
    (tokenizer or byte_level())._backend.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def end_ids(folder: Path) -> frozenset[int]:
    """Every id that ends an answer."""
    return Tokenizer.from_directory(folder).special.end_ids


@pytest.mark.parametrize("make", [byte_level, sentencepiece, space_only_at_start])
def test_tokenizer_json_gives_the_same_ids_and_text(tmp_path: Path, make: Any) -> None:
    """What tokenizer.json describes behaves as the tokenizer it was written from."""
    expected: Tokenizer = make()
    read = Tokenizer.from_directory(write(tmp_path, expected))

    for text in [*FIXTURE["texts"], "a b</s> a"]:
        ids = expected.encode(text)
        assert read.encode(text) == ids
        assert read.decode(ids) == expected.decode(ids)
        assert read.encode(text, parse_special=True) == expected.encode(text, parse_special=True)


def test_a_missing_tokenizer_is_named_with_the_way_to_make_it(tmp_path: Path) -> None:
    """Without tokenizer.json the message names the file, an older form that is there, and how to convert it."""
    (tmp_path / "tokenizer.model").write_bytes(b"")

    with pytest.raises(
        TokenizerError, match=r"tokenizer\.json is missing \(tokenizer\.model is there.*save_pretrained"
    ):
        Tokenizer.from_directory(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json"])
@pytest.mark.parametrize("content", ["{", "[1]"])
def test_an_unreadable_file_is_named(tmp_path: Path, name: str, content: str) -> None:
    """A file that is no JSON object ends in an error with its path."""
    write(tmp_path)
    (tmp_path / name).write_text(content, encoding="utf-8")

    with pytest.raises(TokenizerError, match=name.replace(".", r"\.")):
        Tokenizer.from_directory(tmp_path)


def test_truncation_and_padding_in_the_file_are_switched_off(tmp_path: Path) -> None:
    """A prompt is never cut or filled because tokenizer.json was saved from training."""
    original = byte_level()
    backend = Tokenizer.from_directory(write(tmp_path))._backend
    backend.enable_truncation(max_length=3)
    backend.enable_padding(length=50)
    backend.save(str(tmp_path / "tokenizer.json"))

    read = Tokenizer.from_directory(tmp_path)

    for text in ("a", "a long text that is more than three tokens"):
        assert read.encode(text) == original.encode(text)


def test_an_answer_ends_at_the_eos_of_every_file(tmp_path: Path) -> None:
    """tokenizer_config.json, generation_config.json and config.json may each name another end."""
    eos = byte_level().control_tokens["<|im_end|>"]
    write(
        tmp_path,
        tokenizer_config={"eos_token": {"content": "<|im_end|>"}},
        generation_config={"eos_token_id": [7, 8]},
        config={"eos_token_id": 9},
    )

    assert end_ids(tmp_path) == {eos, 7, 8, 9}
    assert Tokenizer.from_directory(tmp_path).special.eos_id == eos


@pytest.mark.parametrize("declared", [None, True, "x", []])
def test_an_eos_id_that_is_no_id_counts_as_none(tmp_path: Path, declared: object) -> None:
    """null, booleans and strings in eos_token_id name no token."""
    assert end_ids(write(tmp_path, config={"eos_token_id": declared})) == frozenset()


def test_special_strings_come_from_ids_where_no_file_spells_them(tmp_path: Path) -> None:
    """config.json alone is enough for bos_token and eos_token in templates."""
    tokens = byte_level().control_tokens
    folder = write(tmp_path, config={"bos_token_id": tokens["<|im_start|>"], "eos_token_id": tokens["<|im_end|>"]})

    tokenizer = Tokenizer.from_directory(folder)

    assert tokenizer.strings == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert tokenizer.special.bos_id == tokens["<|im_start|>"]


def test_a_special_token_that_the_tokenizer_lacks_is_an_error(tmp_path: Path) -> None:
    """Files of two models in one directory are told apart from a model without eos."""
    folder = write(tmp_path, tokenizer_config={"eos_token": "<|none|>"})

    with pytest.raises(TokenizerError, match=r"'<\|none\|>' the eos_token.*different models"):
        Tokenizer.from_directory(folder)


def test_bos_is_added_where_the_post_processor_adds_it(tmp_path: Path) -> None:
    """tokenizer.json decides whether a prompt begins with bos."""
    bos = byte_level().control_tokens["<|im_start|>"]
    folder = write(tmp_path, tokenizer_config={"bos_token": "<|im_start|>"})
    assert not Tokenizer.from_directory(folder).add_bos

    backend = Tokenizer.from_directory(folder)._backend
    backend.post_processor = processors.TemplateProcessing(
        single=["<|im_start|>", "$A"], special_tokens=[("<|im_start|>", bos)]
    )
    backend.save(str(folder / "tokenizer.json"))
    tokenizer = Tokenizer.from_directory(folder)

    assert tokenizer.add_bos
    assert tokenizer.encode("<|im_end|>")[0] == bos
    assert tokenizer.encode("a", add_special_tokens=False) == tokenizer.encode("a")[1:]
