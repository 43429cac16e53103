"""Plain loads that only guess what a compare-and-swap is going to find.

Compilers begin an atomic operation that the hardware does not have with a plain load of the place, compute the new
value, and swap it in if the place still holds what was loaded (LLVM's AtomicExpandPass). Whatever other waves do
meanwhile, an old guess only makes the swap fail: so such a load counts as atomic in race detection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zinc_rt.isa import Instruction, Operand, Target
from zinc_rt.isa.control_flow import Block, Flow
from zinc_rt.isa.effects import effects, written_operands

_LOADS = {f"{space}_load_b{bits}": bits for space in ("global", "flat", "ds") for bits in (32, 64)}
_SWAPS = {
    **{f"{space}_atomic_cmpswap_b{bits}": bits for space in ("global", "flat") for bits in (32, 64)},
    **{f"ds_cmpstore_{returns}b{bits}": bits for returns in ("", "rtn_") for bits in (32, 64)},
}


def compare_guesses(graph: Flow, target: Target) -> frozenset[int]:
    """The pcs of loads whose registers are what the next compare-and-swap of the same place compares with: on the
    only way from the load, and nothing changes them or the address before."""
    if not any(instruction.row.name in _SWAPS for _, instruction in graph.instructions()):
        return frozenset()
    return frozenset(
        pc
        for block in graph.blocks.values()
        for at, (pc, instruction) in enumerate(block.instructions)
        if instruction.row.name in _LOADS and _is_guess(graph, block, at, target)
    )


def _is_guess(graph: Flow, block: Block, at: int, target: Target) -> bool:
    load = block.instructions[at][1]
    place, loaded = _place(load, load.operands[1:]), load.operands[0].index
    own = effects(load, target)
    kept = own.writes | own.reads
    if own.writes & own.reads:
        return False
    for instruction in _ahead(graph, block, at + 1):
        name = instruction.row.name
        if _SWAPS.get(name) == _LOADS[load.row.name]:
            operands = instruction.operands[written_operands(instruction) :]
            if name.startswith("ds_"):
                address, compared = operands[:1], operands[2].index
            else:
                address, compared = (operands[0], *operands[2:]), operands[1].index + operands[1].width // 2
            return compared == loaded and _place(instruction, address) == place
        if effects(instruction, target).writes & kept:
            return False
    return False


def _place(instruction: Instruction, address: Sequence[Operand]) -> tuple[object, ...]:
    offset = instruction.modifier("offset")
    space = instruction.row.name.partition("_")[0]
    return space, offset.value if offset is not None else 0, *((each.kind, each.index) for each in address)


def _ahead(graph: Flow, block: Block, at: int) -> Iterator[Instruction]:
    """The instructions from there on, as long as there is one way only."""
    seen = {block.start}
    yield from (instruction for _, instruction in block.instructions[at:])
    while len(block.successors) == 1 and block.successors[0] not in seen and block.successors[0] in graph.blocks:
        block = graph.blocks[block.successors[0]]
        seen.add(block.start)
        yield from (instruction for _, instruction in block.instructions)
