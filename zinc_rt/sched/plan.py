"""What one step computes."""

from __future__ import annotations

from dataclasses import dataclass, field

from zinc_rt.sched.kv_cache import PageCopy
from zinc_rt.sched.request import Request


@dataclass(slots=True)
class StepPiece:
    """Tokens [first, last) of a request; `draws`: a token is drawn behind the last. State rows are -1 without."""

    request: Request
    first: int
    last: int
    draws: bool
    source: int
    target: int


@dataclass(slots=True)
class StepPlan:
    """Decodes first, then prompts."""

    pieces: list[StepPiece] = field(default_factory=list)
    copies: list[PageCopy] = field(default_factory=list)
    tokens: int = 0

    def add(self, piece: StepPiece) -> None:
        self.pieces.append(piece)
        self.tokens += piece.last - piece.first
