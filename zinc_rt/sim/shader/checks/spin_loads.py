"""Detection of LDS loads that wait for another wave.

The encoding of an LDS load does not show whether it is atomic. A compiler moves a plain load out of a loop that
neither changes its address nor writes memory, because without synchronisation its value cannot change. A load that
stays in such a loop is therefore atomic or volatile, and race detection treats it as atomic. Compilers copy the
first iteration of a loop before it: a load at the same offset whose value is only compared, in a block shortly
before the loop, is the same one.
"""

from __future__ import annotations

from collections.abc import Sequence

from zinc_rt.isa import Instruction, Target
from zinc_rt.isa.control_flow import Block, Flow
from zinc_rt.isa.effects import effects, operand_registers

_LOADS = {"ds_load_b32", "ds_load_b64"}
_MOST_BLOCKS_BETWEEN = 3


def find_spin_loads(graph: Flow, target: Target) -> frozenset[int]:
    """Return the pcs of the LDS loads that wait for another wave."""
    if not any(instruction.row.name in _LOADS for _, instruction in graph.instructions()):
        return frozenset()
    result: set[int] = set()
    for block in graph.blocks.values():
        loads = _list_spinning(block, target)
        result |= {pc for pc, _ in loads}
        if loads:
            result |= _find_first_iterations(graph, block, {_offset(load) for _, load in loads}, target)
    return frozenset(result)


def _list_spinning(block: Block, target: Target) -> list[tuple[int, Instruction]]:
    """Return the loads of a block that branches to itself, writes no memory and leaves their addresses as they
    are.
    """
    if block.start not in block.successors or len(block.successors) < 2:
        return []
    instructions = [instruction for _, instruction in block.instructions]
    if any(item.row.unit in ("store", "atomic") or "barrier" in item.row.name for item in instructions):
        return []
    written = 0
    for item in instructions:
        written |= effects(item, target).writes
    return [
        (pc, item)
        for pc, item in block.instructions
        if item.row.name in _LOADS and not operand_registers(item.operands[1]) & written
    ]


def _find_first_iterations(graph: Flow, loop: Block, offsets: set[object], target: Target) -> set[int]:
    """Return the pcs of loads at the same offset that decide, shortly before the loop, whether it is entered."""
    near = {loop.start}
    for _ in range(_MOST_BLOCKS_BETWEEN):
        near |= {start for start, block in graph.blocks.items() if near & set(block.successors)}
    return {
        pc
        for start in near - {loop.start}
        if len(graph.blocks[start].successors) > 1
        for index, (pc, item) in enumerate(graph.blocks[start].instructions)
        if item.row.name in _LOADS
        and _offset(item) in offsets
        and _is_only_compared(graph.blocks[start].instructions[index + 1 :], item, target)
    }


def _is_only_compared(following: Sequence[tuple[int, Instruction]], load: Instruction, target: Target) -> bool:
    """Return whether comparisons are the only instructions after the load in its block that read its value."""
    value = operand_registers(load.operands[0])
    readers = [item for _, item in following if effects(item, target).reads & value]
    return bool(readers) and all(item.row.name.startswith("v_cmp_") for item in readers)


def _offset(load: Instruction) -> object:
    offset = load.modifier("offset")
    return 0 if offset is None else offset.value
