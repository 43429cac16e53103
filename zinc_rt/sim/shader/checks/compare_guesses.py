"""Plain loads that only guess what a compare-and-swap is going to find.

Compilers begin an atomic operation that the hardware does not have with a plain load of the place, compute the new
value, and swap it in if the place still holds what was loaded (LLVM's AtomicExpandPass). Whatever other waves do
meanwhile, an old guess only makes the swap fail: so such a load counts as atomic in race detection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zinc_rt.isa import Instruction, Kind, Operand, Target
from zinc_rt.isa.control_flow import Block, Flow
from zinc_rt.isa.effects import VGPR, effects, registers, written_operands

_LOADS = {f"{space}_load_b{bits}": bits for space in ("global", "flat", "ds", "s") for bits in (32, 64)}
_SWAPS = {
    **{f"{space}_atomic_cmpswap_b{bits}": bits for space in ("global", "flat") for bits in (32, 64)},
    **{f"ds_cmpstore_{returns}b{bits}": bits for returns in ("", "rtn_") for bits in (32, 64)},
}


def compare_guesses(graph: Flow, target: Target) -> frozenset[int]:
    """The pcs of loads whose contents, perhaps moved, the next compare-and-swap of the same place compares with:
    on the only way from the load, and nothing changes them or the address before."""
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
    bits, place, own = _LOADS[load.row.name], _loaded_place(load), effects(load, target)
    if place is None or own.writes & own.reads:
        return False
    first = (registers(load.operands[0]) & -registers(load.operands[0])).bit_length() - 1
    words = {first + word: word for word in range(bits // 32)}  # register: which dword of what was loaded
    zeros: set[int] = set()  # VGPRs
    for instruction in _ahead(graph, block, at + 1):
        if _SWAPS.get(instruction.row.name) == bits:
            compared, swapped = _compared(instruction, zeros)
            return swapped == place and all(words.get(compared + word) == word for word in range(bits // 32))
        written = effects(instruction, target).writes
        if written & own.reads:
            return False
        before = words
        words = {register: word for register, word in words.items() if not written >> register & 1}
        zeros = {register for register in zeros if not written >> VGPR + register & 1}
        for half in (instruction, instruction.second):
            if half is None or half.row.name not in ("v_mov_b32", "v_dual_mov_b32"):
                continue
            destination, source = half.operands
            moved = registers(source).bit_length() - 1
            if moved in before:
                words[VGPR + destination.index] = before[moved]
            elif source.kind is Kind.INTEGER and source.value == 0:
                zeros.add(destination.index)
    return False


Place = tuple[object, ...]


def _place(instruction: Instruction, address: Sequence[Operand]) -> Place:
    offset = instruction.modifier("offset")
    space = instruction.row.name.partition("_")[0]
    return space, offset.value if offset is not None else 0, *((each.kind, each.index) for each in address)


def _loaded_place(load: Instruction) -> Place | None:
    """Of a scalar load: as of a global one from the same base; None where its offset is in a register."""
    if not load.row.name.startswith("s_"):
        return _place(load, load.operands[1:])
    _, base, offset = load.operands[:3]
    if len(load.operands) > 3 or offset.kind is not Kind.IMMEDIATE:
        return None
    return "global", offset.value, (base.kind, base.index)


def _compared(swap: Instruction, zeros: set[int]) -> tuple[int, Place]:
    """The first register that is compared with, and the place; its VGPR offset is left out where it is zero."""
    operands = swap.operands[written_operands(swap) :]
    if swap.row.name.startswith("ds_"):
        return VGPR + operands[2].index, _place(swap, operands[:1])
    address = [operands[0], *operands[2:]]
    if operands[-1].kind is Kind.SGPR and operands[0].index in zeros:
        address = address[1:]
    return VGPR + operands[1].index + operands[1].width // 2, _place(swap, address)


def _ahead(graph: Flow, block: Block, at: int) -> Iterator[Instruction]:
    """The instructions from there on, as long as there is one way only."""
    seen = {block.start}
    yield from (instruction for _, instruction in block.instructions[at:])
    while len(block.successors) == 1 and block.successors[0] not in seen and block.successors[0] in graph.blocks:
        block = graph.blocks[block.successors[0]]
        seen.add(block.start)
        yield from (instruction for _, instruction in block.instructions)
