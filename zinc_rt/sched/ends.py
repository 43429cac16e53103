"""Which tokens end whose answer, found for a whole step by one lookup."""

from __future__ import annotations

import numpy as np

from zinc_rt.sched.request import Request
from zinc_rt.sched.sampling import Sampling

MOST = 1 << 20  # ids beyond any vocabulary


def end_tokens_of(sampling: Sampling, of_model: frozenset[int]) -> frozenset[int]:
    """Which tokens end an answer that is sampled so."""
    own = frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else of_model)
    return frozenset(token for token in own if 0 <= token < MOST)


class EndTokens:
    """Counts, by token id, who bound now would end there: few tokens do, so only theirs are looked at."""

    def __init__(self) -> None:
        self._users = np.zeros(1, np.int32)  # the last is of every larger id: nobody's

    def add(self, request: Request) -> None:
        """It is bound: its end tokens count."""
        own = request.end_tokens
        if own and max(own) + 2 > len(self._users):
            self._users = np.concatenate([self._users, np.zeros(max(own) + 2 - len(self._users), np.int32)])
        for token in own:
            self._users[token] += 1

    def remove(self, request: Request) -> None:
        for token in request.end_tokens:
            self._users[token] -= 1

    def rows(self, tokens: np.ndarray) -> list[int]:
        """Which of the tokens end somebody's answer."""
        hits: list[int] = np.flatnonzero(self._users.take(tokens, mode="clip")).tolist()
        return hits

    def ends(self, request: Request, token: int) -> bool:
        """Whether the token ends the request's answer, now that so many are made."""
        return token in request.end_tokens and request.made >= request.sampling.min_tokens
