"""Token ids to text, one at a time, as they are sampled.

A character may take several tokens: `é` can be two, an emoji four. Nothing is emitted before its last byte is known,
and nothing is decoded twice: each token costs its own bytes, however long the text has become.
"""

import codecs

from chairlift.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns one sequence's tokens into text.

    What `push` and `flush` return, joined, equals `Tokenizer.decode` of the same ids. A U+FFFD that the model
    produced as a character is emitted at once; one that stands for broken bytes, as soon as they cannot become
    a character any more.

    Args:
        tokenizer: the model's.
        skip_special_tokens: leave control tokens out.
        continues_text: the tokens follow a prompt, so a first space separates them from it and stays (the default,
            for it is what generation does); otherwise a SentencePiece tokenizer's own first space is dropped.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True, continues_text: bool = True) -> None:
        self._piece = tokenizer.piece
        self._skipped = tokenizer.control_ids if skip_special_tokens else frozenset[int]()
        self._drop_space = tokenizer.strips_leading_space and not continues_text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """Text that this token completes: whole characters, often none."""
        if token_id in self._skipped:
            return ""
        piece = self._piece(token_id)
        if self._drop_space and piece:
            self._drop_space = False
            piece = piece.removeprefix(b" ")
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """End the sequence: U+FFFD if its last character never became whole, otherwise nothing."""
        return self._decoder.decode(b"", final=True)
