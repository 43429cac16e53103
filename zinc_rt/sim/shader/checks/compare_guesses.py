"""Detection of plain loads that only supply the expected value of a compare-and-swap.

Compilers expand an atomic operation without hardware support into a plain load, a computation, and a
compare-and-swap with the loaded value (LLVM's AtomicExpandPass). A stale value only makes the swap fail, so race
detection treats such a load as atomic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zinc_rt.isa import Instruction, Kind, Operand, Target
from zinc_rt.isa.control_flow import Block, Flow
from zinc_rt.isa.effects import VGPR, count_written_operands, effects, operand_registers

_LOADS = {f"{space}_load_b{bits}": bits for space in ("global", "flat", "ds", "s") for bits in (32, 64)}
_SWAPS = {
    **{f"{space}_atomic_cmpswap_b{bits}": bits for space in ("global", "flat") for bits in (32, 64)},
    **{f"ds_cmpstore_{returns}b{bits}": bits for returns in ("", "rtn_") for bits in (32, 64)},
}


def compare_guesses(graph: Flow, target: Target) -> frozenset[int]:
    """Return the pcs of loads whose value, possibly moved, is the comparand of the next compare-and-swap at the
    same address. The path from the load must be unique, without changes to the value or the address.
    """
    if not any(instruction.row.name in _SWAPS for _, instruction in graph.instructions()):
        return frozenset()
    return frozenset(
        pc
        for block in graph.blocks.values()
        for index, (pc, instruction) in enumerate(block.instructions)
        if instruction.row.name in _LOADS and _is_guess(graph, block, index, target)
    )


def _is_guess(graph: Flow, block: Block, index: int, target: Target) -> bool:
    load = block.instructions[index][1]
    bits, location, own = _LOADS[load.row.name], _find_loaded_place(load), effects(load, target)
    if location is None or own.writes & own.reads:
        return False
    first = (operand_registers(load.operands[0]) & -operand_registers(load.operands[0])).bit_length() - 1
    words = {first + word: word for word in range(bits // 32)}  # register: dword index in the loaded value
    zeros: set[int] = set()  # VGPRs
    for instruction in _iterate_following(graph, block, index + 1):
        if _SWAPS.get(instruction.row.name) == bits:
            compared, swapped = _find_compared_place(instruction, zeros)
            return swapped == location and all(words.get(compared + word) == word for word in range(bits // 32))
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
            moved = operand_registers(source).bit_length() - 1
            if moved in before:
                words[VGPR + destination.index] = before[moved]
            elif source.kind is Kind.INTEGER and source.value == 0:
                zeros.add(destination.index)
    return False


Place = tuple[object, ...]


def _make_place(instruction: Instruction, address: Sequence[Operand]) -> Place:
    offset = instruction.modifier("offset")
    space = instruction.row.name.partition("_")[0]
    return (
        space,
        offset.value if offset is not None else 0,
        *((operand.kind, operand.index) for operand in address),
    )


def _find_loaded_place(load: Instruction) -> Place | None:
    """Return the address of a scalar load, in the form of a global load from the same base; None if its offset
    is in a register.
    """
    if not load.row.name.startswith("s_"):
        return _make_place(load, load.operands[1:])
    _, base, offset = load.operands[:3]
    if len(load.operands) > 3 or offset.kind is not Kind.IMMEDIATE:
        return None
    return "global", offset.value, (base.kind, base.index)


def _find_compared_place(swap: Instruction, zeros: set[int]) -> tuple[int, Place]:
    """Return the first comparand register and the address; a zero VGPR offset is omitted."""
    operands = swap.operands[count_written_operands(swap) :]
    if swap.row.name.startswith("ds_"):
        return VGPR + operands[2].index, _make_place(swap, operands[:1])
    address = [operands[0], *operands[2:]]
    if operands[-1].kind is Kind.SGPR and operands[0].index in zeros:
        address = address[1:]
    return VGPR + operands[1].index + operands[1].width // 2, _make_place(swap, address)


def _iterate_following(graph: Flow, block: Block, index: int) -> Iterator[Instruction]:
    """Iterate over the following instructions while there is only one path."""
    seen = {block.start}
    yield from (instruction for _, instruction in block.instructions[index:])
    while len(block.successors) == 1 and block.successors[0] not in seen and block.successors[0] in graph.blocks:
        block = graph.blocks[block.successors[0]]
        seen.add(block.start)
        yield from (instruction for _, instruction in block.instructions)
