"""Which tokens an answer may go on with, where that is not any: asked before each draw, told of each token."""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np


class TokenMask(Protocol):
    """Of one choice, as far as it has come. `complete`: nothing can follow, so that the answer ends; `failure`:
    why it cannot go on, "" while it can."""

    @property
    def complete(self) -> bool: ...

    @property
    def failure(self) -> str: ...

    def fill(self, words: np.ndarray) -> None:
        """Set bit id % 32 of word id // 32, i32 [ceil(V / 32)], where a token is allowed. In another thread than
        `accept`, never at the same time."""

    def accept(self, token: int) -> None:
        """A token was drawn and counts."""

    def fork(self) -> Self:
        """Another choice that begins here."""
