"""The tokens of prompts, made when they are asked for, from the recipe alone: in any order, the same every time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from chairlift.core.errors import ConfigError
from chairlift.core.request import TokenId
from chairlift.lab.loads.draws import stream_bytes
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.request import ScheduledRequest, Segment

NO_ANSWERS: Mapping[int, Sequence[TokenId]] = {}


@dataclass(frozen=True, slots=True)
class SafeIds:
    """The token ids that prompts are drawn from: ordinary tokens of the target's vocabulary."""

    start: TokenId
    """The first."""
    stop: TokenId
    """One more than the last."""
    without: tuple[TokenId, ...] = ()
    """Ids in between that are not ordinary, ascending."""

    def __post_init__(self) -> None:
        if list(self.without) != sorted({token for token in self.without if self.start <= token < self.stop}):
            raise ConfigError(f"the ids left out must ascend and lie in {self.start} .. {self.stop - 1}.")
        if self.start < 0 or len(self) < 1:
            raise ConfigError(f"of the ids {self.start} .. {self.stop - 1} none is left to draw prompts from.")

    @classmethod
    def of(cls, vocab_size: int, control_ids: Iterable[TokenId]) -> SafeIds:
        """All of a vocabulary but its control tokens."""
        return cls(0, vocab_size, tuple(sorted(token for token in set(control_ids) if 0 <= token < vocab_size)))

    def __len__(self) -> int:
        return self.stop - self.start - len(self.without)

    def pick(self, words: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> list[TokenId]:
        """One id for each random 32-bit word, all equally likely but for one part in 2³² / len(self)."""
        ids = (words * np.uint64(len(self)) >> np.uint64(32)).astype(np.int64) + self.start
        if self.without:  # the n-th that is left has as many ids left out below it as lie at or below n + that many
            left_out = np.array(self.without, dtype=np.int64)
            ids += np.searchsorted(left_out - np.arange(len(left_out)), ids, side="right")
        picked: list[TokenId] = ids.tolist()
        return picked


class Prompts:
    """Prompts of one load for one target."""

    def __init__(self, load: Load, ids: SafeIds, salt: str = "") -> None:
        """Nothing is drawn yet.

        Args:
            load: its seed and nonce count.
            ids: what to draw from.
            salt: goes into the nonces. Two runs of a load with different salts share nothing, whatever the target has
                cached of the first; with the same salt they send the same bytes.
        """
        self._seed = load.seed
        self._nonce = load.nonce
        self._ids = ids
        self._salt = salt

    def tokens(self, request: ScheduledRequest, answers: Mapping[int, Sequence[TokenId]] = NO_ANSWERS) -> list[TokenId]:
        """Exactly request.prompt_tokens ids.

        Args:
            request: whose prompt.
            answers: by request index, what earlier turns were really answered. Where one is absent, or shorter than
                the load says, drawn ids stand in, so that the length is what was asked.
        """
        tokens: list[TokenId] = []
        for place, segment in enumerate(request.recipe):
            if segment.stream == "answer" and (answer := answers.get(segment.number)) is not None:
                real = list(answer[: segment.tokens])
                tokens += real + self._draw(segment)[len(real) :]
            else:
                tokens += self.stretch(segment, first=place == 0)
        return tokens

    def stretch(self, segment: Segment, *, first: bool) -> list[TokenId]:
        """The ids of one segment.

        A nonce replaces the front of a prompt's first segment, so prompts that share the segment share the nonce.
        """
        tokens = self._draw(segment)
        nonce = min(self._nonce, segment.tokens)
        if first and nonce:
            tokens[:nonce] = self._draw(Segment(f"nonce/{self._salt}/{segment.stream}", segment.number, nonce))
        return tokens

    def _draw(self, segment: Segment) -> list[TokenId]:
        data = stream_bytes(self._seed, f"tokens/{segment.stream}", segment.number, 4 * segment.tokens)
        return self._ids.pick(np.frombuffer(data, dtype="<u4").astype(np.uint64))
