"""Facts that hold on all paths to an instruction: a forward must-analysis over bit sets."""

from __future__ import annotations

from collections.abc import Callable

from zinc_rt.isa.control_flow import Block, Flow

Found = dict[tuple[int, int], int]
"""Facts before an instruction, by (block start, pc)."""

Step = Callable[[Block, int, Found | None], int]
"""From a block and the facts before it, those behind it; into `Found` those before each instruction, if given."""


def forward(graph: Flow, start: int, step: Step) -> Found:
    """Run a must-analysis: return the facts (a bit set) that hold on all paths before each instruction."""
    before = dict.fromkeys(graph.blocks, -1)
    before[graph.entry] = start
    waiting = list(graph.blocks)
    while waiting:
        block = graph.blocks[waiting.pop(0)]
        after = step(block, before[block.start], None)
        for successor in block.successors:
            if successor in before and before[successor] & after != before[successor]:
                before[successor] &= after
                if successor not in waiting:
                    waiting.append(successor)
    result: Found = {}
    for block in graph.blocks.values():
        step(block, before[block.start], result)
    return result
