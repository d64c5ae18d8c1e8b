"""What a step costs by: a few integers that are found in O(rows) from a plan, and in O(1) for a repeat of it."""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.core.plan import RowKind, StepPlan


@dataclass(frozen=True, slots=True)
class StepShape:
    """Sizes of one step. Padding and dead rows are computed like any other, and are counted."""

    tokens: int
    """Computed tokens, of all kinds."""
    rows: int
    """Sequences in the step."""
    logits: int
    """Rows whose logits are computed: all of one token (a dead row's are computed and dropped), and the prompts that
    yield a token."""
    context: int = 0
    """Positions read by attention, summed over the rows of one token."""
    growth: int = 0
    """By how much `context` grows when the step is repeated: the decode rows. A dead row stays where it is."""
    pairs: int = 0
    """For rows with prompt tokens: (token, position it looks at) pairs."""
    prompt_context: int = 0
    """For rows with prompt tokens: positions whose keys and values are read, each once a row."""
    prompts: int = 0
    """Rows with prompt tokens."""
    longest: int = 0
    """Positions of the longest row, this step's included."""
    longest_decode: int = 0
    """The same of the rows that grow when the step is repeated."""

    @staticmethod
    def of(plan: StepPlan) -> StepShape:
        """Count a plan. O(rows)."""
        singles = plan.single_token_rows
        context = sum(plan.starts[:singles]) + singles
        dead = plan.token_counts.dead
        longest = longest_decode = max(plan.starts[:singles], default=-1) + 1
        if dead:
            rows = zip(plan.kinds[:singles], plan.starts[:singles], strict=True)
            longest_decode = max((start for kind, start in rows if kind is RowKind.DECODE), default=-1) + 1
        pairs = prompt_context = tokens = 0
        for start, count in zip(plan.starts[singles:], plan.counts[singles:], strict=True):
            tokens += count
            pairs += count * start + count * (count + 1) // 2
            prompt_context += start + count
            longest = max(longest, start + count)
        prompts = len(plan) - singles
        return StepShape(
            tokens=singles + tokens,
            rows=len(plan),
            logits=singles + (sum(plan.samples[singles:]) if prompts else 0),
            context=context,
            growth=singles - dead,
            pairs=pairs,
            prompt_context=prompt_context,
            prompts=prompts,
            longest=longest,
            longest_decode=longest_decode,
        )

    @staticmethod
    def decode(rows: int, context: int) -> StepShape:
        """`rows` decodes, each of which reads `context` positions, its own included."""
        return StepShape(rows, rows, rows, context=rows * context, growth=rows, longest=context, longest_decode=context)

    @staticmethod
    def prefill(rows: int, tokens: int, *, start: int = 0, samples: bool = True) -> StepShape:
        """`rows` prompts (or chunks that begin at `start`) of so many tokens each."""
        return StepShape(
            tokens=rows * tokens,
            rows=rows,
            logits=rows if samples else 0,
            pairs=rows * (tokens * start + tokens * (tokens + 1) // 2),
            prompt_context=rows * (start + tokens),
            prompts=rows,
            longest=start + tokens,
        )

    def beside(self, other: StepShape) -> StepShape:
        """Both in one step."""
        return StepShape(
            tokens=self.tokens + other.tokens,
            rows=self.rows + other.rows,
            logits=self.logits + other.logits,
            context=self.context + other.context,
            growth=self.growth + other.growth,
            pairs=self.pairs + other.pairs,
            prompt_context=self.prompt_context + other.prompt_context,
            prompts=self.prompts + other.prompts,
            longest=max(self.longest, other.longest),
            longest_decode=max(self.longest_decode, other.longest_decode),
        )

    def after(self, steps: int) -> StepShape:
        """The step that follows `steps` repeats of this one. Only meaningful without prompt rows. O(1)."""
        if not self.growth:
            return self
        grown = self.longest_decode + steps
        return StepShape(
            self.tokens,
            self.rows,
            self.logits,
            context=self.context + self.growth * steps,
            growth=self.growth,
            pairs=self.pairs,
            prompt_context=self.prompt_context,
            prompts=self.prompts,
            longest=max(self.longest, grown),
            longest_decode=grown,
        )

    def describe(self) -> str:
        """`8 decodes of 1,024` or `2 prompts, 512 tokens`: for messages."""
        singles = self.rows - self.prompts
        parts = []
        if self.prompts:
            parts.append(f"{self.prompts} prompt rows with {self.tokens - singles:,} tokens to {self.longest:,}")
        if singles:
            parts.append(f"{singles} decodes over {self.context:,} positions")
        return ", ".join(parts) or "an empty step"
