"""Forward data-flow analysis: the state at the start of each block, propagated along all paths from the entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from zinc_rt.isa.lint.finding import LintSubject

State = TypeVar("State")


def solve_forward(
    subject: LintSubject,
    start: State,
    transfer: Callable[[int, State], State],
    merge: Callable[[State, State], State],
) -> dict[int, State]:
    """Return the state before each reachable block.

    `over(block, state)` returns the state after a block and `merge` the state where two paths join; neither may
    modify its arguments.
    """
    blocks = subject.flow.blocks
    into = {subject.flow.entry: start}
    todo = list(subject.order)
    while todo:
        second: set[int] = set()
        for pc in (pc for pc in todo if pc in into):
            out = transfer(pc, into[pc])
            for successor in blocks[pc].successors:
                merged = merge(into[successor], out) if successor in into else out
                if successor not in into or merged != into[successor]:
                    into[successor] = merged
                    second.add(successor)
        todo = [pc for pc in subject.order if pc in second]
    return into
