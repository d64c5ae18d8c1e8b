import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from chairlift.core.errors import TokenizerError
from chairlift.text.pieces import Alphabet, Pieces, byte_level_alphabet
from tests.text.vocabularies import byte_level, sentencepiece

SPACE = "\u2581"
LLAMA_2 = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


def pieces_of(tokens: list[str], decoder: decoders.Decoder | None, added: tuple[str, ...] = ()) -> Pieces:
    """The pieces of a tokenizer with these tokens, this decoder and these added tokens."""
    backend = tokenizers.Tokenizer(models.BPE({token: token_id for token_id, token in enumerate(tokens)}, []))
    backend.decoder = decoder
    backend.add_tokens(list(added))
    return Pieces(backend)


def test_the_alphabet_is_the_one_the_library_writes() -> None:
    """Each of the 256 bytes has one character, the same as in the tokenizers library."""
    alphabet = byte_level_alphabet()

    assert set(alphabet) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(alphabet.values()) == list(range(256))
    [(word, _)] = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str("é \n\u20ac~")
    assert bytes(alphabet[character] for character in word) == "é \n\u20ac~".encode()


def test_byte_level_tokens_spell_bytes_and_added_tokens_themselves() -> None:
    """An ordinary token is spelled byte for byte; an added one is its own text, even outside ASCII."""
    pieces = pieces_of(["\u00c3", "\u00a9", "\u0120a", "\u4f60"], decoders.ByteLevel(), ("é", " x"))

    assert pieces.alphabet is Alphabet.BYTE_LEVEL
    assert [pieces[token_id] for token_id in range(6)] == [
        b"\xc3", b"\xa9", b" a", "\u4f60".encode(), "é".encode(), b" x"
    ]  # fmt: skip


def test_ids_may_have_gaps() -> None:
    """The size is one more than the largest id, and an id that was left out is empty."""
    backend = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 7}, []))
    backend.decoder = decoders.ByteLevel()
    pieces = Pieces(backend)

    assert pieces.size == 8
    assert [pieces[token_id] for token_id in (0, 3, 7)] == [b"a", b"", b"b"]


def test_sentencepiece_tokens_are_text_or_a_byte() -> None:
    """U+2581 stands for a space, <0xE2> for a byte, and anything else for itself."""
    pieces = pieces_of([f"{SPACE}a", "<0xE2>", "<0x2>", "é"], decoders.Sequence(LLAMA_2), (f"{SPACE}{SPACE}",))

    assert pieces.alphabet is Alphabet.SENTENCEPIECE
    assert [pieces[token_id] for token_id in range(5)] == [b" a", b"\xe2", b"<0x2>", "é".encode(), b"  "]


@pytest.mark.parametrize("token_id", [-1, 5, 1 << 40])
def test_an_id_without_a_token_is_empty(token_id: int) -> None:
    """Rows of a padded output matrix decode to nothing, and nothing is kept for them."""
    pieces = pieces_of(["a"], decoders.ByteLevel())

    assert pieces[token_id] == b""
    assert not pieces._bytes_of


@pytest.mark.parametrize(
    ("decoder", "strips"),
    [
        (decoders.Sequence(LLAMA_2), True),
        (decoders.Sequence(LLAMA_2[:3]), False),
        (decoders.Metaspace(), True),
        (decoders.Metaspace(prepend_scheme="never"), False),
    ],
)
def test_only_a_tokenizer_that_adds_a_space_takes_one_off(decoder: decoders.Decoder, *, strips: bool) -> None:
    """The decoder says whether the first space of a text is the tokenizer's own."""
    assert pieces_of(["a"], decoder).strips_leading_space is strips


@pytest.mark.parametrize(
    "decoder", [None, decoders.WordPiece(), decoders.CTC(), decoders.BPEDecoder(), decoders.Sequence([decoders.Fuse()])]
)
def test_an_unknown_decoder_is_refused(decoder: decoders.Decoder | None) -> None:
    """Text would come out wrong without a word; the error names what was found and what is supported."""
    with pytest.raises(TokenizerError, match=r"decodes with.*byte-level and SentencePiece"):
        pieces_of(["a"], decoder)


def test_both_fixtures_cover_every_byte() -> None:
    """Each single byte is some token's, so any text can be spelled."""
    for tokenizer in (byte_level(), sentencepiece()):
        spelled = {tokenizer.piece(token_id) for token_id in range(tokenizer.vocab_size)}

        assert {bytes((byte,)) for byte in range(256)} <= spelled
