"""Basic blocks of a kernel, found from its entry by following branches.

Indirect jumps go to places that are known when the code is translated: return addresses of calls, and what
s_getpc_b64 plus a constant gives. Another address at run time ends the wave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.isa import Instruction, Kind, Operand, Target, decode

CONDITIONAL = ("s_cbranch_scc0", "s_cbranch_scc1", "s_cbranch_vccz", "s_cbranch_vccnz", "s_cbranch_execz",
               "s_cbranch_execnz")  # fmt: skip
INDIRECT = ("s_setpc_b64", "s_swappc_b64")
ENDS = ("s_endpgm", "s_endpgm_saved", "s_rfe_b64", "s_trap", "s_code_end", "s_sendmsghalt")
Fetch = Callable[[int], Instruction | None]
CALLS = ("s_swappc_b64", "s_call_b64")


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions from `start` to a jump or to the start of another block; byte offsets in the kernel.

    `illegal_at`: where bytes that are no instruction stop it. `falls`: it goes on at `end` without a jump.
    """

    start: int
    end: int
    code: tuple[tuple[int, Instruction], ...]
    successors: tuple[int, ...]
    falls: bool
    illegal_at: int | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    entry: int
    blocks: dict[int, Block]  # by start, in ascending order
    indirect: tuple[int, ...]  # where indirect jumps may go


def branch_target(instruction: Instruction, pc: int) -> int:
    """Of s_branch, s_cbranch_* and s_call_b64: a byte offset, which may lie outside the kernel."""
    words = int(instruction.operands[-1].value or 0)
    return pc + 4 + 4 * (words - (words >> 15 << 16))


def graph_of(code: bytes, entry: int, target: Target) -> Graph:
    decoded: dict[int, Instruction | None] = {}

    def at(pc: int) -> Instruction | None:
        if pc not in decoded:
            decoded[pc] = decode(code, pc, target) if 0 <= pc < len(code) else None
        return decoded[pc]

    starts, waiting = {entry}, [entry]
    indirect: set[int] = set()
    formed: set[int] = set()  # every address that s_getpc_b64 plus a constant gives
    calls_anywhere = False  # a call whose address comes from another block or from vector registers
    while waiting or calls_anywhere:
        if not waiting:
            places = {place for place in formed - starts if place % 4 == 0 and at(place) is not None}
            if not places:
                break
            indirect |= places
            starts |= places
            waiting += sorted(places)
        pc = waiting.pop()
        addresses: dict[int, int] = {}  # SGPR: the offset whose low half it holds
        while (instruction := at(pc)) is not None:
            found: list[int] = []
            name = instruction.mnemonic
            if name == "s_swappc_b64" and _sgpr(instruction.operands[-1]) not in addresses:
                calls_anywhere = True
            _follow_addresses(instruction, pc, addresses, indirect, formed)
            following = pc + instruction.size_bytes
            if name in CALLS:
                indirect.add(following)
            if name in CONDITIONAL or name in ("s_branch", "s_call_b64"):
                found.append(branch_target(instruction, pc))
            if name in CONDITIONAL or name == "s_barrier_wait":
                found.append(following)
            if name == "s_barrier_wait":
                found.append(pc)  # a waiting wave comes back to it
            found += [place for place in indirect if place not in starts]
            waiting += [place for place in found if place not in starts]
            starts.update(found)
            if ends_block(name):
                break
            pc = following
    targets = tuple(sorted(indirect))
    blocks = {start: _block(start, starts, at, targets) for start in sorted(starts)}
    return Graph(entry, blocks, targets)


def ends_block(mnemonic: str) -> bool:
    return (
        mnemonic in CONDITIONAL
        or mnemonic in ENDS
        or mnemonic in INDIRECT
        or mnemonic in ("s_branch", "s_call_b64", "s_barrier_wait")
    )


def _block(start: int, starts: set[int], at: Fetch, indirect: tuple[int, ...]) -> Block:
    code: list[tuple[int, Instruction]] = []
    pc = start
    while True:
        if pc in starts and pc != start:
            return Block(start, pc, tuple(code), (pc,), falls=True)
        instruction = at(pc)
        if instruction is None:
            return Block(start, pc, tuple(code), (), falls=False, illegal_at=pc)
        code.append((pc, instruction))
        following = pc + instruction.size_bytes
        name = instruction.mnemonic
        if ends_block(name):
            successors: tuple[int, ...] = ()
            if name in CONDITIONAL:
                successors = tuple({branch_target(instruction, pc): None, following: None})
            elif name in ("s_branch", "s_call_b64"):
                successors = (branch_target(instruction, pc),)
            elif name == "s_barrier_wait":
                successors = (following,)
            elif name in INDIRECT:
                successors = indirect
            return Block(start, following, tuple(code), successors, falls=False)
        pc = following


def _sgpr(operand: Operand) -> int | None:
    return operand.index if operand.kind in (Kind.SGPR, Kind.SPECIAL) else None


def _follow_addresses(
    instruction: Instruction, pc: int, addresses: dict[int, int], indirect: set[int], formed: set[int]
) -> None:
    """Within a block: registers that hold the low half of an address in this code, modulo 2**32."""
    name, operands = instruction.mnemonic, instruction.operands
    if name in INDIRECT and _sgpr(operands[-1]) in addresses:
        indirect.add(addresses[operands[-1].index])
    if not operands or (destination := _sgpr(operands[0])) is None:
        return
    value: int | None = None
    if name == "s_getpc_b64":
        value = pc + instruction.size_bytes
    elif name in ("s_mov_b32", "s_mov_b64"):
        value = addresses.get(operands[1].index) if _sgpr(operands[1]) is not None else None
    elif name in ("s_add_co_u32", "s_add_nc_u64", "s_sub_co_u32", "s_sub_nc_u64"):
        first, second = operands[1:]
        constant = second if second.value is not None else first
        register = first if constant is second else second
        base = addresses.get(register.index) if _sgpr(register) is not None else None
        if base is not None and constant.kind in (Kind.LITERAL, Kind.INTEGER) and constant.value is not None:
            offset = int(constant.value)
            signed = (base + offset if "add" in name else base - offset) & 0xFFFFFFFF
            value = signed - (signed >> 31 << 32)
            formed.add(value)
    for at in range(operands[0].width):
        addresses.pop(destination + at, None)
    if value is not None:
        addresses[destination] = value
