"""Byte-level pre-tokenizers by the name that GGUF gives them: how text is cut into words before merges apply.

A merge never crosses a cut, so one wrong cut changes token ids without any error. Every name listed here was compared
with llama.cpp, which defines the names (`scripts/make_tokenizer_fixture.py`); a name that was not is refused.

The patterns are those of the models' own tokenizers: GPT-2's (Radford et al. 2019, `encoder.py`), Llama 3's and
Qwen2's (their `tokenizer.json`). `default` is what llama.cpp uses for files made before the name was recorded.
"""

from dataclasses import dataclass
from typing import Final

from tokenizers import Regex, pre_tokenizers

_CONTRACTIONS: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3: Final = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2: Final = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one pre-tokenizer cuts, and what its name implies about the rest of the tokenizer."""

    patterns: tuple[str, ...]
    """Applied one after the other; each match, and each gap between matches, becomes a piece of its own."""
    ignore_merges: bool = False
    """A word that is a token as a whole is taken as it is, even where no sequence of merges leads to it."""
    add_bos: bool = False
    """Whether prompts begin with the bos token when the file does not say."""


_GPT2_WORDS: Final = Recipe((_GPT2,))
_SINGLE_DIGITS: Final = Recipe((r"\p{N}", _GPT2))
_QWEN2_WORDS: Final = Recipe((_QWEN2,))
_LLAMA3_WORDS: Final = Recipe((_LLAMA3,), ignore_merges=True, add_bos=True)

RECIPES: Final = {
    "default": Recipe((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2": _GPT2_WORDS,
    "mpt": _GPT2_WORDS,
    "olmo": _GPT2_WORDS,
    "phi-2": _GPT2_WORDS,
    "smollm": _SINGLE_DIGITS,
    "starcoder": _SINGLE_DIGITS,
    "refact": _SINGLE_DIGITS,
    "command-r": _SINGLE_DIGITS,
    "minerva-7b": _SINGLE_DIGITS,
    "llama3": _LLAMA3_WORDS,
    "llama-v3": _LLAMA3_WORDS,
    "llama-bpe": _LLAMA3_WORDS,
    "falcon3": _LLAMA3_WORDS,
    "smaug-bpe": Recipe((_LLAMA3,)),
    "qwen2": _QWEN2_WORDS,
    "deepseek-r1-qwen": _QWEN2_WORDS,
    "megrez": _QWEN2_WORDS,
    "stablelm2": _QWEN2_WORDS,
}
"""Each name that a GGUF file may give in `tokenizer.ggml.pre` and that this package reproduces."""


def build(recipe: Recipe) -> pre_tokenizers.PreTokenizer:
    """The pre-tokenizer of a recipe: its cuts, then bytes written as the printable characters of GPT-2's alphabet."""
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in recipe.patterns]
    return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
