"""A tokenizer of bytes, and engines on a fake runner: what the engine's tests stand on."""

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from chairlift.text.special import SpecialTokens
from chairlift.text.tokenizer import Tokenizer

END = 256
"""The end-of-sequence token; 0 to 255 are the bytes."""


def byte_tokenizer() -> Tokenizer:
    """Token n is the byte n; 256 is `<end>`."""
    alphabet = _bytes_to_letters()
    backend = tokenizers.Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<end>", special=True)])
    return Tokenizer(backend, SpecialTokens(eos_id=END, end_ids=frozenset({END})), {"eos_token": "<end>"})


def _bytes_to_letters() -> list[str]:
    """GPT-2's printable letter for each byte."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(n) if n in printable else chr(next(others)) for n in range(256)]


class Clock:
    """Time that passes only when told, or by `tick` at each look."""

    def __init__(self, tick: int = 0) -> None:
        self.time = 0
        self.tick = tick

    def __call__(self) -> int:
        self.time += self.tick
        return self.time
