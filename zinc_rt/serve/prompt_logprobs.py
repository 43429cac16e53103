"""Logprobs of a prompt's own tokens: it is drawn again, one token a step, each masked to what stands there.

Logprobs are of the logits before any mask, so that they are those of reading it. What is computed stays in the
prefix cache, for the answer behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from zinc_rt.batching.completion import TokenLogprob
from zinc_rt.sampling import Sampling
from zinc_rt.serve.answers import failure_of
from zinc_rt.serve.requests import Ask
from zinc_rt.serve.server import InferenceServer


@dataclass(slots=True, eq=False)
class ForcedTokens:
    """A TokenMask that allows these tokens alone, one after the other."""

    tokens: Sequence[int]
    taken: int = 0

    complete, failure = False, ""

    def fill(self, words: np.ndarray) -> None:
        words[:] = 0
        if self.taken < len(self.tokens):
            id = self.tokens[self.taken]
            words.view(np.uint32)[id // 32] = np.uint32(1 << id % 32)

    def accept(self, token: int) -> None:
        self.taken += 1

    def fork(self) -> Self:
        return type(self)(self.tokens, self.taken)


async def prompt_logprobs(server: InferenceServer, ask: Ask, top: int) -> list[TokenLogprob | int]:
    """Of each of its prompt's tokens, with `top` rivals; the first is a bare id, as nothing stands before it.
    Raises ServeError where the request fails."""
    first, rest = ask.tokens[0], ask.tokens[1:]
    if not rest:
        return [first]
    sampling = Sampling(max_tokens=len(rest), logprobs=top, ignore_eos=True, seed=0)
    scored: list[TokenLogprob | int] = [first]
    forced = replace(ask, tokens=(first,), sampling=sampling, grammar=ForcedTokens(rest))
    async with await server.submit(forced) as stream:
        async for deliveries in stream:
            for delivered in deliveries:
                scored += delivered.logprobs or ()
                if delivered.finish_reason not in (None, "length"):
                    raise failure_of(delivered.finish_reason)
    return scored
