"""How much work a step is: floating-point operations and bytes moved, from a model's shape.

The counts show why prefill is bound by compute and decode by memory: every step reads all weights whatever
the batch, while operations grow with the tokens. A multiply-add counts as two operations. Only matrix
products and attention are counted; norms, rotations and activations are below one per cent of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.core.errors import ContractError
from chairlift.core.plan import StepPlan


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What decides the cost of a decoder-only transformer."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    layer_weight_bytes: int
    """Bytes of all layers' weights as stored: read once in every step."""
    head_weight_bytes: int
    """Bytes of the output head: read in every step that samples."""
    kv_element_bytes: int = 2

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values of one token over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.kv_element_bytes

    @property
    def linear_flops_per_token(self) -> int:
        """2 x weights of the layers: q, k, v, output projections and a gated feed-forward of three matrices."""
        attention = self.hidden_size * self.head_dim * (2 * self.num_heads + 2 * self.num_kv_heads)
        feed_forward = 3 * self.hidden_size * self.intermediate_size
        return 2 * self.num_layers * (attention + feed_forward)

    @property
    def head_flops_per_sample(self) -> int:
        """2 x hidden x vocabulary."""
        return 2 * self.hidden_size * self.vocab_size

    @property
    def attention_flops_per_pair(self) -> int:
        """For each (token, token it looks at): the product with the key and with the value, in all heads and layers."""
        return 4 * self.num_layers * self.num_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class Work:
    """Operations and bytes of one step, the rows with one token apart from those with prompt tokens."""

    decode_flops: int
    prefill_flops: int
    weight_bytes: int
    decode_kv_bytes: int
    prefill_kv_bytes: int

    @property
    def flops(self) -> int:
        return self.decode_flops + self.prefill_flops

    @property
    def bytes(self) -> int:
        return self.weight_bytes + self.decode_kv_bytes + self.prefill_kv_bytes


def work_of(plan: StepPlan, shape: ModelShape, times: int = 1) -> Work:
    """Count the work of a plan, or of as many repeats of it in which only lengths grow: padding and dead rows are work
    like any other.
    """
    singles = plan.single_token_rows * times
    context = sum(plan.starts[: plan.single_token_rows]) * times + singles
    context += (plan.single_token_rows - plan.token_counts.dead) * (times * (times - 1) // 2)
    if times > 1 and plan.single_token_rows < len(plan):
        raise ContractError(f"step {plan.step} has prompt rows and cannot be repeated {times} times.")
    pair, linear, head = shape.attention_flops_per_pair, shape.linear_flops_per_token, shape.head_flops_per_sample
    decode_flops = singles * (linear + head) + context * pair

    prefill_tokens = prefill_pairs = prefill_context = 0
    first = plan.single_token_rows
    for start, count in zip(plan.starts[first:], plan.counts[first:], strict=True):
        prefill_tokens += count
        prefill_pairs += count * start + count * (count + 1) // 2
        prefill_context += start + count
    prompts_sampled = sum(plan.samples[first:])
    prefill_flops = prefill_tokens * linear + prefill_pairs * pair + prompts_sampled * head

    kv = shape.kv_bytes_per_token
    return Work(
        decode_flops=decode_flops,
        prefill_flops=prefill_flops,
        weight_bytes=times * (shape.layer_weight_bytes + (shape.head_weight_bytes if singles + prompts_sampled else 0)),
        decode_kv_bytes=(context + singles) * kv,
        prefill_kv_bytes=(prefill_context + prefill_tokens) * kv,
    )
