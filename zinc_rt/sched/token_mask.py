"""Token masks that constrain answers: queried before each sample, advanced by each token."""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np


class TokenMask(Protocol):
    """The mask of one choice in its current state. `complete`: no token can follow, so the answer ends;
    `failure`: why it cannot continue, or ""."""

    @property
    def complete(self) -> bool: ...

    @property
    def failure(self) -> str: ...

    def fill(self, words: np.ndarray) -> None:
        """Set bit id % 32 of word id

        32, i32 [ceil(V / 32)], for each permitted token. It runs in another thread than `accept`, never at
        the same time.
        """

    def accept(self, token: int) -> None:
        """Advance by a sampled token."""

    def fork(self) -> Self:
        """Return an independent copy for another choice."""
