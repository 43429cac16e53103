"""The loops of a control flow graph, by nesting."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from zinc_rt.isa.control_flow import Flow, order_blocks


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: `blocks` by start, including those of inner loops; `head` is the block where control first
    enters.
    """

    head: int
    blocks: frozenset[int]
    depth: int  # 1: in no other loop
    innermost: bool


def find_loops(flow: Flow) -> list[Loop]:
    """Return all loops by the pc of their head, outer loops first."""
    rank = {pc: index for index, pc in enumerate(order_blocks(flow))}
    loops: list[Loop] = []
    _collect(flow, rank, frozenset(rank), 1, loops)
    return sorted(loops, key=lambda loop: (loop.head, loop.depth))


def _collect(flow: Flow, rank: dict[int, int], within: frozenset[int], depth: int, loops: list[Loop]) -> bool:
    any_found = False
    for blocks in _find_cycles(flow, within):
        any_found = True
        head = min(blocks, key=rank.__getitem__)
        has_inner = _collect(flow, rank, blocks - {head}, depth + 1, loops)
        loops.append(Loop(head, blocks, depth, not has_inner))
    return any_found


def _find_cycles(flow: Flow, within: Collection[int]) -> list[frozenset[int]]:
    """Return the strongly connected components that contain a cycle (Tarjan's algorithm, iterative)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    result: list[frozenset[int]] = []
    for root in within:
        if root in index:
            continue
        work = [(root, iter(_list_blocks_inside(flow, root, within)))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            pc, rest = work[-1]
            successor = next(rest, None)
            if successor is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[pc])
                if low[pc] == index[pc]:
                    part = set()
                    while pc not in part:
                        part.add(stack.pop())
                    on_stack -= part
                    if len(part) > 1 or pc in _list_blocks_inside(flow, pc, within):
                        result.append(frozenset(part))
            elif successor not in index:
                index[successor] = low[successor] = len(index)
                stack.append(successor)
                on_stack.add(successor)
                work.append((successor, iter(_list_blocks_inside(flow, successor, within))))
            elif successor in on_stack:
                low[pc] = min(low[pc], index[successor])
    return result


def _list_blocks_inside(flow: Flow, pc: int, within: Collection[int]) -> list[int]:
    return [successor for successor in flow.blocks[pc].successors if successor in within]
