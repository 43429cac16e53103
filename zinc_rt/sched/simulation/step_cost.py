"""The predicted time of a step: a + b tokens + c context.

The constants are those of `zinc-rt perf predict`, a roofline model that no card has confirmed: runs with them
are predicted, not measured. tests/perf/test_step_cost.py recomputes them.
"""

from __future__ import annotations

from dataclasses import dataclass

NS = 1_000_000_000
GAP_RATIO = 1.3  # an interactive request's p99 gap over its p50, at most (ZINC_RT design, 3.2)


@dataclass(frozen=True, slots=True)
class StepCost:
    """Microseconds: `step_us` per step, `token_us` per token in it, `context_us` per context token of a
    sampling sequence."""

    card: str
    model: str
    step_us: float
    token_us: float
    context_us: float
    source: str

    def nanoseconds(self, tokens: int, context: int) -> int:
        return round(1000 * (self.step_us + self.token_us * tokens + self.context_us * context))

    def interactive_tokens(self, slots: int) -> int:
        """Return the most tokens for which a step takes at most GAP_RATIO times as long as one with a decode
        in every slot."""
        return slots + int((GAP_RATIO - 1) * (self.step_us + self.token_us * slots) / self.token_us)


# token_us: the instructions that one token's kernels issue, over what the SIMDs issue; kernels that compute
# several tokens from one reading of a weight make it smaller. Memory and instructions are added here, where a
# roofline takes the larger: too slow by step_us at most.
PREDICTED = StepCost(
    "Radeon AI PRO R9700",
    "the shape of Qwen3 8B, Q4_K_M",
    step_us=10_676.0,
    token_us=1_636.0,
    context_us=0.576,
    source="zinc-rt perf predict --model qwen3-8b-q4_k_m.gguf --ctx 32768, likely case, canonical-1",
)
