"""What leaves the engine: answers piece by piece, and whole."""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.core.request import FinishReason, TokenId


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """What one request got since its last delta. The last one, and only that, has a finish_reason."""

    request_id: str
    text: str
    """Whole characters only; never the beginning of what may become a stop string. May be empty."""
    token_ids: tuple[TokenId, ...]
    """Every token released, those that have no text and the one that stopped the answer included."""
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens found in the prefix cache at admission."""
    output_tokens: int
    """Tokens released so far, these included."""
    finish_reason: FinishReason | None = None
    stop_reason: str | TokenId | None = None
    """The stop string or stop token that ended the answer."""
    error: str = ""
    """For FinishReason.ERROR: what failed, and what can be done."""

    def joined(self, later: OutputDelta) -> OutputDelta:
        """This delta and the one after it, as one."""
        return OutputDelta(
            request_id=self.request_id,
            text=self.text + later.text,
            token_ids=self.token_ids + later.token_ids,
            prompt_tokens=later.prompt_tokens,
            cached_tokens=later.cached_tokens,
            output_tokens=later.output_tokens,
            finish_reason=later.finish_reason,
            stop_reason=later.stop_reason,
            error=later.error,
        )


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """A whole answer."""

    request_id: str
    prompt: str | None
    """The prompt's text; None when token ids were given."""
    prompt_token_ids: tuple[TokenId, ...]
    text: str
    token_ids: tuple[TokenId, ...]
    finish_reason: FinishReason
    stop_reason: str | TokenId | None
    cached_tokens: int
    error: str = ""
    """For FinishReason.ERROR: what failed."""
