"""The time of steps as a curve over their tokens, for planning: interpolated between predicted steps."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepCurve:
    """Microseconds of a step by its tokens, at context 0: `tokens` ascending, `microseconds` of each.

    From `tiled_from` tokens on, kernels compute tiles of `tile` tokens, and a partial tile costs as much as a
    whole one. `pair_us` is the time of one prompt token and one key that it attends to, over all layers.
    """

    tokens: tuple[int, ...]
    microseconds: tuple[float, ...]
    tile: int
    tiled_from: int
    pair_us: float

    def base_us(self, tokens: int) -> float:
        """Return the time of a step with that many tokens; beyond the last point it is proportional."""
        if tokens >= self.tiled_from:
            tokens = -(-tokens // self.tile) * self.tile
        if tokens >= self.tokens[-1]:
            return self.microseconds[-1] * tokens / self.tokens[-1]
        index = bisect_left(self.tokens, tokens)
        if index == 0 or self.tokens[index] == tokens:
            return self.microseconds[index]
        left, right = self.tokens[index - 1], self.tokens[index]
        part = (tokens - left) / (right - left)
        return self.microseconds[index - 1] * (1 - part) + self.microseconds[index] * part
