"""Most sequences and greatest length at once: more than the KV pool can hold, and what follows from it.

Either limit alone is harmless. Together they promise memory that is not there; what then happens depends on how much an
admitted request holds. Said when a server starts, by `chairlift memory` and by `chairlift doctor`, in these words.
"""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.core.config import KVCapacity, SchedulerConfig, flag

_ROWS = {"static": "batch_size", "dynamic": "max_batch_size", "continuous": "max_num_seqs"}


@dataclass(frozen=True, slots=True)
class Extremes:
    """A configuration that promises more than the pool holds."""

    setting: str
    """The field that limits how many run at once."""
    sequences: int
    """Its value."""
    max_model_len: int
    pool_tokens: int
    whole: int
    """Sequences of max_model_len that the pool holds."""
    all_up_to: int
    """Tokens up to which a sequence may grow if all run at once."""
    reservation: str

    @property
    def share(self) -> float:
        """Of what is promised, the part that the pool holds."""
        return self.pool_tokens / (self.sequences * self.max_model_len)

    def __str__(self) -> str:
        """One sentence for what is, one for what follows, one for the way out."""
        head = (
            f"{flag(self.setting)} {self.sequences:,} and {flag('max_model_len')} {self.max_model_len:,} together ask "
            f"for {self.sequences * self.max_model_len:,} tokens of KV cache; the pool has {self.pool_tokens:,}: "
            f"{self.whole:,} sequences of full length, or all {self.sequences:,} up to {self.all_up_to:,} tokens each."
        )
        follows = {
            "prompt": "Beyond that requests are preempted and computed again",
            "full": "Beyond that requests wait although the limit on sequences is not reached",
            "model_len": "Requests beyond the pool wait, however short they are",
        }[self.reservation]
        return (
            f"{head} {follows}. Start below both maxima and raise one of them while watching preemptions and the KV "
            f"cache in use."
        )


def rows_setting(config: SchedulerConfig) -> str:
    """The field that limits how many sequences run at once under the configuration's policy."""
    return _ROWS[config.policy]


def find_extremes(config: SchedulerConfig, capacity: KVCapacity) -> Extremes | None:
    """None when the pool holds as many sequences of max_model_len as may run at once.

    Args:
        config: under its own policy.
        capacity: the pool, in blocks; a sequence's last block counts whole.
    """
    setting = rows_setting(config)
    sequences: int = getattr(config, setting)
    blocks = -(-config.max_model_len // capacity.block_size)
    whole = capacity.num_blocks // blocks
    if whole >= sequences:
        return None
    return Extremes(
        setting=setting,
        sequences=sequences,
        max_model_len=config.max_model_len,
        pool_tokens=capacity.num_blocks * capacity.block_size,
        whole=whole,
        all_up_to=capacity.num_blocks // sequences * capacity.block_size,
        reservation=config.effective_kv_reservation,
    )
