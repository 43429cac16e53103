"""Drafters for gates and tests: one with a set acceptance, and adversarial ones. They know the tokens to come."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from zinc_rt.sched.speculation import DraftTask

Target = Callable[[int, int, int], int | None]  # of a request's number, choice and position: its token, if known
DraftKind = Literal["right", "wrong", "off_by_one", "liar", "share"]
KINDS: tuple[DraftKind, ...] = ("right", "wrong", "off_by_one", "liar", "share")


@dataclass(slots=True)
class ScriptedDrafter:
    """Drafts by a `kind`: always the right tokens; always wrong ones; those of the next position; more or fewer
    than were asked for, with ids outside the vocabulary; right ones with probability `acceptance` each."""

    target: Target
    vocab: int
    kind: DraftKind = "share"
    acceptance: float = 0.7
    seed: int = 0
    drafted: int = 0
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def propose(self, tasks: Sequence[DraftTask]) -> Sequence[Sequence[int]]:
        proposals = [self._propose(task) for task in tasks]
        self.drafted += sum(map(len, proposals))
        return proposals

    def forget(self, number: int, choice: int) -> None:
        pass

    def close(self) -> None:
        pass

    def _propose(self, task: DraftTask) -> list[int]:
        length, count = len(task.tokens), task.most
        if self.kind == "off_by_one":
            return self._list_targets(task, length + 1, count)
        tokens = self._list_targets(task, length, count)
        if self.kind == "wrong":
            return [(token + 1) % self.vocab for token in tokens]
        if self.kind == "share":
            return [
                token if self._chance.random() < self.acceptance else (token + 1) % self.vocab for token in tokens
            ]
        if self.kind == "liar":
            more = self._chance.choice([[], [self.vocab], [-1], [self.vocab], tokens * 3, tokens[:1], [0] * 40])
            return (tokens + more)[self._chance.choice([0, 0, 1, count, count]) :]
        return tokens

    def _list_targets(self, task: DraftTask, first: int, count: int) -> list[int]:
        targets = (self.target(task.number, task.choice, position) for position in range(first, first + count))
        return [0 if token is None else token for token in targets]
