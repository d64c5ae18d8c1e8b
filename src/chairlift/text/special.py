"""The tokens that mean something to the engine rather than to a reader."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Token ids with a role; None where the model has no such token."""

    bos_id: int | None = None
    """Stands before a prompt, if the model wants it there."""
    eos_id: int | None = None
    """The first of the tokens that end an answer: what templates call `eos_token`."""
    unk_id: int | None = None
    """Stands for text without a token; byte-level tokenizers need none."""
    pad_id: int | None = None
    """Fills unused places."""
    end_ids: frozenset[int] = field(default_factory=frozenset)
    """Every id that ends generation. Chat models often have two: end of turn and end of text."""
