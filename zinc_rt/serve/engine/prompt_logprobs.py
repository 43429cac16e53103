"""Logprobs of a prompt's tokens, computed by sampling the prompt with a mask that allows only its next token.

Logprobs are computed from the logits before any mask, and all tokens have the ordering of prompts, so they equal
those of prefill. The KV entries stay in the prefix cache for the answer that follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from zinc_rt.engine.answering import TokenLogprob
from zinc_rt.sched.sampling import Sampling
from zinc_rt.serve.engine.requests import EngineRequest
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError


@dataclass(slots=True, eq=False)
class ForcedTokens:
    """A TokenMask that allows a fixed sequence of tokens."""

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


async def compute_all_prompt_logprobs(
    server: InferenceServer, asks: Sequence[EngineRequest], top: int
) -> list[list[TokenLogprob | int]]:
    """Return the logprobs of all prompts, with `top` alternatives. If a request fails, cancel the others and
    raise ServeError."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(compute_prompt_logprobs(server, ask, top)) for ask in asks]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def compute_prompt_logprobs(
    server: InferenceServer, ask: EngineRequest, top: int
) -> list[TokenLogprob | int]:
    """Return the logprobs of the prompt's tokens, with `top` alternatives.

    The first token is a bare id because it has no context. Raises ServeError if the request fails.
    """
    first, rest = ask.tokens[0], ask.tokens[1:]
    if not rest:
        return [first]
    sampling = Sampling(max_tokens=len(rest), logprobs=top, ignore_eos=True, seed=0)
    scored: list[TokenLogprob | int] = [first]
    forced = replace(
        ask, tokens=(first,), sampling=sampling, grammar=ForcedTokens(rest), decoded_from=len(ask.tokens)
    )
    async with await server.submit(forced) as stream:
        async for deliveries in stream:
            for delivered in deliveries:
                scored += delivered.logprobs or ()
    if len(scored) < len(ask.tokens):  # a tenant may be held to shorter answers
        message = f"the prompt's {len(ask.tokens)} tokens exceed the answer length limit of this tenant"
        raise ServeError(400, f"echo: {message}; its logprobs are sampled as an answer", param="echo")
    return scored
