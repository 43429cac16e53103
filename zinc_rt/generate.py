"""From a prompt's last logits to tokens, one after another, until something ends them."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass

import numpy as np

from zinc_rt.engine import Engine, Sequence
from zinc_rt.errors import CheckFailed, UsageError
from zinc_rt.kernels.reference.arithmetic import arithmetic
from zinc_rt.kernels.reference.sample import sample
from zinc_rt.runner import StepOutput


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn: temperature 0 takes the likeliest one; top_k 0, top_p 1, min_p 0 switch their filter
    off."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def check(self) -> None:
        """Check every value: UsageError for one outside its range."""
        wanted = (
            ("--temperature", self.temperature, "0 or more", 0 <= self.temperature < math.inf),
            ("--top-k", self.top_k, "0 (off) or a count", 0 <= self.top_k < 1 << 24),  # a float32 holds it exactly
            ("--top-p", self.top_p, "more than 0, at most 1 (off)", 0 < self.top_p <= 1),
            ("--min-p", self.min_p, "0 (off) to 1", 0 <= self.min_p <= 1),
            ("--seed", self.seed, "0 to 2^64 - 1", 0 <= self.seed < 1 << 64),
        )
        for name, value, range_, fits in wanted:
            if not fits:
                raise UsageError(f"{name} {value}: wanted {range_}")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def draw(self, logits: np.ndarray, *, choice: int = 0, position: int) -> int:
        """A token from logits f32 [V] by the oracle's SAMPLE kernel, fixed by seed, choice and position."""
        if np.isnan(logits).any():
            raise CheckFailed(
                f"position {position}: logit {int(np.isnan(logits).argmax())} is not a number",
                next="zinc-rt validate says in which layer it starts",
            )
        halves = np.array([self.seed & 0xFFFFFFFF, self.seed >> 32], np.uint32).view(np.int32)
        return int(
            sample(
                arithmetic("canonical-1"),
                logits[None],
                halves[None],
                np.array([[self.temperature, self.top_k, self.top_p, self.min_p]], np.float32),
                np.array([choice], np.int32),
                np.array([position], np.int32),
            )[0]
        )


@dataclass(slots=True)
class Drawn:
    """How many tokens were drawn where: by the tier (`device`), or from logits that the host read (`host`)."""

    device: int = 0
    host: int = 0

    @property
    def text(self) -> str:
        parts = ((self.device, "by the device"), (self.host, "on the host, from logits that it read"))
        return ", ".join(f"{count} {where}" for count, where in parts if count) or "none"


def generate(
    engine: Engine,
    sequence: Sequence,
    logits: np.ndarray,
    *,
    sampling: Sampling,
    max_tokens: int,
    end_ids: Container[int],
    emit: Callable[[int], None],
    drawn: Drawn | None = None,
) -> str:
    """Generate tokens. `logits` f32 [V]: the prompt's last. `emit` gets each token as it is drawn, an end token
    too; `drawn` counts where; why it stopped is returned."""
    drawn = drawn or Drawn()
    token = sampling.draw(logits, position=sequence.position)
    drawn.host += 1
    for count in range(max_tokens):
        emit(token)
        if token in end_ids:
            return "end"
        if count + 1 < max_tokens:
            if sequence.position >= engine.limits.ctx:
                return "context"
            output = engine.advance([(sequence, [token])], [0])
            token = choose(output, sampling, position=sequence.position, drawn=drawn)
    return "max_tokens"


def choose(output: StepOutput, sampling: Sampling, *, position: int, drawn: Drawn) -> int:
    """The token after a step with one row. The likeliest one comes from the device; logits are read only to draw
    from them, or where one is no number."""
    if sampling.greedy and output.nonfinite[0] < 0:
        drawn.device += 1
        return int(output.tokens[0])
    drawn.host += 1
    return sampling.draw(output.logits()[0], position=position)
