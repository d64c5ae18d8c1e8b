"""Make tests/text/fixtures/tokenizer.json: token ids from llama.cpp, for what `Tokenizer.from_gguf` must reproduce.

llama.cpp defines what the tokenizer keys of a GGUF file mean, so it is the oracle. Small vocabularies are trained on
random text (byte-level BPE whose merges cross every kind of boundary, so that a wrong cut shows; SentencePiece with
byte fallback), written into GGUF files with a one-layer model of zeros, and tokenized by llama.cpp's own server. The
demo model's vocabulary is tried under every pre-tokenizer too, on many more texts than the fixture keeps.

The packages it needs beside Chairlift's own are no dependencies of the project; use an environment of your own:

    pip install xllamacpp==2026.10.11549 gguf==0.19.0 sentencepiece==0.2.3
    PYTHONPATH=src python scripts/make_tokenizer_fixture.py

Exits 1 when Chairlift and llama.cpp differ anywhere; the differences are printed, the fixture is written all the same.
"""

import argparse
import http.client
import io
import itertools
import json
import random
import sys
import tempfile
import unicodedata
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gguf  # type: ignore[import-not-found]
import numpy as np
import sentencepiece  # type: ignore[import-not-found]
import tokenizers
import xllamacpp
from tokenizers import models, pre_tokenizers, trainers

from chairlift import demo_model
from chairlift.runners.openvino.gguf import GgufFile
from chairlift.text import pretokenizers
from chairlift.text.from_gguf import TokenType
from chairlift.text.tokenizer import Tokenizer

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "text" / "fixtures"
FIXTURE = FOLDER / "tokenizer.json"
SEED = 20_260

WORDS: list[str] = json.loads((FOLDER / "words.json").read_text(encoding="utf-8"))
SPACES = (" ", " ", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", " \n", "\t\t", "    ", "\n\n\n\n", "\u00a0", "")
CONTROL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
LOOKALIKES = (*CONTROL, "<|im_end", "im_end|>", "<s>", "</s>", "<unk>", "<tool_call>")


class Texts:
    """Random texts of kinds that tokenizers disagree on."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def take(self, count: int, *, for_training: bool = False) -> list[str]:
        """Draw texts of all kinds; for training without rare characters and without look-alikes of control tokens."""
        kinds = [self._words, self._words, self._words, self._digits, self._marks]
        if not for_training:
            kinds += [self._control, self._characters]
        return [self._random.choice(kinds)() for _ in range(count)]

    def _joined(self, choices: Sequence[str], most: int) -> str:
        pick = self._random.choice
        return "".join(pick(choices) + pick(SPACES) for _ in range(self._random.randrange(1, most)))

    def _words(self) -> str:
        return self._joined(WORDS, 12)

    def _control(self) -> str:
        return self._joined([*WORDS[:20], *LOOKALIKES * 2], 7)

    def _characters(self) -> str:
        return "".join(self._character() for _ in range(self._random.randrange(1, 20)))

    def _character(self) -> str:
        top = self._random.choice((0x80, 0x250, 0x3000, 0x20000, 0x110000))
        code = self._random.randrange(1, top)
        # On code points without a character llama.cpp's tables follow nobody; surrogates are no characters either.
        return chr(code) if unicodedata.category(chr(code)) not in {"Cn", "Cs"} else "\ufffd"

    def _digits(self) -> str:
        number = "".join(self._random.choice("0123456789") for _ in range(self._random.randrange(1, 9)))
        return self._random.choice(SPACES) + number + self._random.choice(SPACES)

    def _marks(self) -> str:
        return "".join(
            self._random.choice("'sS'tT'RE've'mllLL dD .,!?x\n ") for _ in range(self._random.randrange(1, 24))
        )


class Oracle:
    """llama.cpp's server on a GGUF file that holds a tokenizer and a model of zeros."""

    def __init__(self, metadata: dict[str, Any], folder: Path) -> None:
        path = folder / "model.gguf"
        write_gguf(path, metadata)
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.port = 0
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = 64
        parameters.n_parallel = 1
        parameters.cache_ram_mib = parameters.verbosity = 0
        parameters.warmup = parameters.fit_params = False
        parameters.cpuparams.n_threads = 1
        self._server = xllamacpp.Server(parameters)
        address = urllib.parse.urlparse(self._server.listening_address)
        self._connection = http.client.HTTPConnection(address.hostname or "127.0.0.1", address.port)

    def encode(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """Token ids, as llama.cpp sees them."""
        body = {"content": text, "add_special": add_special, "parse_special": parse_special}
        self._connection.request("POST", "/tokenize", json.dumps(body), {"Content-Type": "application/json"})
        ids: list[int] = json.loads(self._connection.getresponse().read())["tokens"]
        return ids


def write_gguf(path: Path, metadata: dict[str, Any]) -> None:
    """Write a GGUF file with this tokenizer and the smallest Llama that llama.cpp loads."""
    vocabulary, width = len(metadata["tokenizer.ggml.tokens"]), 32
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(width)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width)
    writer.add_vocab_size(vocabulary)
    for key, value in metadata.items():
        kind = gguf.GGUFValueType.UINT32 if type(value) is int else gguf.GGUFValueType.get_type(value)
        if key.startswith("tokenizer.ggml."):
            writer.add_key_value(key, value, kind)
    square = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    shapes = {"token_embd": (vocabulary, width), "output_norm": (width,)}
    shapes |= {f"blk.0.{name}": (width, width) for name in square}
    shapes |= {f"blk.0.{name}": (width,) for name in ("attn_norm", "ffn_norm")}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def train_byte_level(texts: Sequence[str]) -> dict[str, Any]:
    """A byte-level vocabulary whose merges cross words, digits and punctuation alike."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=8,
    )
    backend.train_from_iterator(texts, trainer)
    model = json.loads(backend.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    # Words without merges: only a tokenizer that ignores merges for whole words finds them.
    words = [word for word in ("hello", "\u0120world", "guillemets", "\u0120SCREAMING") if word not in model["vocab"]]
    types = [TokenType.NORMAL] * (len(tokens) + len(words)) + [TokenType.CONTROL] * 3 + [TokenType.USER_DEFINED]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [*tokens, *words, *CONTROL, "<tool_call>"],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.token_type": [int(kind) for kind in types],
        "tokenizer.ggml.bos_token_id": len(tokens) + len(words),
        "tokenizer.ggml.eos_token_id": len(tokens) + len(words) + 1,
    }


def train_sentencepiece(texts: Sequence[str]) -> dict[str, Any]:
    """A SentencePiece BPE vocabulary with byte fallback, as Llama 2's."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text.replace("\0", " ") for text in texts]),
        model_writer=model,
        vocab_size=1_000,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        character_coverage=0.98,
        user_defined_symbols=["<tool_call>"],
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(pieces.vocab_size())

    def kind(token_id: int) -> TokenType:
        if pieces.id_to_piece(token_id) == "<tool_call>":
            return TokenType.USER_DEFINED
        if pieces.is_byte(token_id):
            return TokenType.BYTE
        if pieces.is_unknown(token_id):
            return TokenType.UNKNOWN
        return TokenType.CONTROL if pieces.is_control(token_id) else TokenType.NORMAL

    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [pieces.id_to_piece(token_id) for token_id in ids],
        "tokenizer.ggml.scores": [pieces.get_score(token_id) for token_id in ids],
        "tokenizer.ggml.token_type": [int(kind(token_id)) for token_id in ids],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


@dataclass
class Fixture:
    """What is written, and how often Chairlift differed."""

    folder: Path
    differences: int = 0
    cases: dict[str, Any] = field(default_factory=dict)

    def compare(self, name: str, metadata: dict[str, Any], texts: Sequence[str], keep: Sequence[str] = ()) -> None:
        """Tokenize texts with both, report differences, and keep llama.cpp's ids of some."""
        oracle, ours = Oracle(metadata, self.folder), Tokenizer.from_gguf(metadata)
        wrong = 0
        for text, parse in itertools.product(texts, (False, True)):
            theirs = oracle.encode(text, parse_special=parse)
            mine = ours.encode(text, add_special_tokens=False, parse_special=parse)
            if theirs != mine:
                wrong += 1
                print(f"  {text!a} (parse_special {parse})\n    llama.cpp {theirs}\n    chairlift {mine}")
        self.differences += wrong
        print(f"{name:32} {2 * len(texts):6,} encodings, {wrong} differ")
        if keep:
            plain = [oracle.encode(text) for text in keep]
            parsed = [oracle.encode(text, parse_special=True) for text in keep]
            self.cases[name] = {
                "plain": plain,
                "parsed": {n: ids for n, ids in enumerate(parsed) if ids != plain[n]},
                "framed": oracle.encode("hello", add_special=True),
            }


def compact(value: object, depth: int = 0) -> Iterator[str]:
    """JSON with one line for each entry of the upper levels, so that a change shows as few lines."""
    if isinstance(value, dict):
        entries = [f"{json.dumps(str(key))}: {''.join(compact(item, depth + 1))}" for key, item in value.items()]
        yield "{\n" + ",\n".join(entries) + "\n}"
    elif isinstance(value, list) and value and isinstance(value[0], list):
        yield "[\n" + ",\n".join(json.dumps(item, separators=(",", ":")) for item in value) + "\n]"
    else:
        yield json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def main() -> int:
    """Compare everything and write the fixture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=2_000, help="random texts for each comparison")
    parser.add_argument("--keep", type=int, default=40, help="texts kept in the fixture")
    count, kept = (arguments := parser.parse_args()).texts, arguments.keep
    many, keep = Texts(SEED).take(count), Texts(SEED + 1).take(kept)
    corpus = Texts(SEED + 2).take(4_000, for_training=True)
    demo = dict(GgufFile(demo_model.locate()).metadata)
    byte_level, pieces = train_byte_level(corpus), train_sentencepiece(corpus)
    with tempfile.TemporaryDirectory() as folder:
        fixture = Fixture(Path(folder))
        fixture.compare("demo", demo, many, keep)
        for name in pretokenizers.RECIPES:
            fixture.compare(f"demo as {name}", demo | {"tokenizer.ggml.pre": name}, many[:200])
            fixture.compare(name, byte_level | {"tokenizer.ggml.pre": name}, many[:500])
        for name in ("default", "gpt-2", "smollm", "llama-bpe", "smaug-bpe", "qwen2"):
            fixture.compare(name, byte_level | {"tokenizer.ggml.pre": name}, many, keep)
        fixture.compare("sentencepiece", pieces, many, keep)
        unprefixed = pieces | {"tokenizer.ggml.add_space_prefix": False}
        fixture.compare("sentencepiece without a prefix", unprefixed, many, keep)
    made_with = {name: version(name) for name in ("gguf", "sentencepiece", "tokenizers", "xllamacpp")}
    document = {
        "made with": made_with,
        "texts": keep,
        "byte-level": byte_level,
        "sentencepiece": pieces,
        "cases": fixture.cases,
    }
    FIXTURE.write_text("".join(compact(document)) + "\n", encoding="utf-8")
    print(f"{FIXTURE}: {FIXTURE.stat().st_size:,} bytes; {fixture.differences} differences")
    return 1 if fixture.differences else 0


if __name__ == "__main__":
    sys.exit(main())
