"""From a prompt's last logits to tokens, one after another, until something ends them."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

import numpy as np

from zinc_rt.engine.engine import Engine, Sequence
from zinc_rt.engine.runner import StepOutput
from zinc_rt.errors import CheckFailed
from zinc_rt.kernels.reference.arithmetic import arithmetic
from zinc_rt.kernels.reference.sample import sample
from zinc_rt.sched.sampling import Sampling


def draw(sampling: Sampling, logits: np.ndarray, *, choice: int = 0, position: int) -> int:
    """Draw a token from logits f32 [V] by the oracle's SAMPLE kernel, fixed by seed (none: 0), choice and
    position."""
    if np.isnan(logits).any():
        raise CheckFailed(
            f"position {position}: logit {int(np.isnan(logits).argmax())} is not a number",
            next="zinc-rt validate says in which layer it starts",
        )
    seed = sampling.seed or 0
    halves = np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32).view(np.int32)
    return int(
        sample(
            arithmetic("canonical-1"),
            logits[None],
            halves[None],
            np.array([[sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p]], np.float32),
            np.array([choice], np.int32),
            np.array([position], np.int32),
        )[0]
    )


@dataclass(slots=True)
class DrawCounts:
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
    drawn: DrawCounts | None = None,
) -> str:
    """Generate tokens. `logits` f32 [V]: the prompt's last. `emit` gets each token as it is drawn, an end token
    too; `drawn` counts where; why it stopped is returned."""
    drawn = drawn or DrawCounts()
    token = draw(sampling, logits, position=sequence.position)
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


def choose(output: StepOutput, sampling: Sampling, *, position: int, drawn: DrawCounts) -> int:
    """The token after a step with one row. The likeliest one comes from the device; logits are read only to draw
    from them, or where one is no number."""
    if sampling.greedy and output.nonfinite[0] < 0:
        drawn.device += 1
        return int(output.tokens[0])
    drawn.host += 1
    return draw(sampling, output.logits()[0], position=position)
