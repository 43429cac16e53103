"""What holds at the start of each block, carried along all paths from the entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from zinc_rt.isa.lint.finding import Subject

State = TypeVar("State")


def forward(
    subject: Subject, start: State, over: Callable[[int, State], State], merge: Callable[[State, State], State]
) -> dict[int, State]:
    """The state before each block that can be reached.

    `over(block, state)` is the state behind a block, `merge` what holds where two paths meet; both leave what they
    are given as it was.
    """
    blocks = subject.flow.blocks
    into = {subject.flow.entry: start}
    todo = list(subject.order)
    while todo:
        again: set[int] = set()
        for pc in (pc for pc in todo if pc in into):
            out = over(pc, into[pc])
            for successor in blocks[pc].successors:
                merged = merge(into[successor], out) if successor in into else out
                if successor not in into or merged != into[successor]:
                    into[successor] = merged
                    again.add(successor)
        todo = [pc for pc in subject.order if pc in again]
    return into
