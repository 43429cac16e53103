"""SMEM of gfx12: scalar loads, prefetches and cache control, two dwords.

Operands of a row: `d` the loaded dwords, `i` that field as a number in front, `l` as a number at the end; `b` the base,
2 or 4 dwords, which in turn says whether the offset is signed.
"""

from __future__ import annotations

from zinc_rt.isa.cache_policy import NON_VOLATILE, SCALE_OFFSET, policy
from zinc_rt.isa.immediates import small
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import Operand, immediate
from zinc_rt.isa.rows import rows
from zinc_rt.isa.source import scalar
from zinc_rt.isa.target import Target

_NULL = 124


def decode(word: int, code: bytes, at: int, target: Target) -> Instruction | None:
    opcode = word >> 13 & 0x3F
    row = rows("memory", "SMEM", target.generation).get(opcode)
    if row is None or at + 8 > len(code):
        return None
    high = int.from_bytes(code[at + 4 : at + 8], "little")
    policies = policy("load", word >> 23 & 3, word >> 21 & 3)
    if not row.operands:
        return Instruction("SMEM", opcode, row.mnemonic, (), (), 8, (word, high))
    register, soffset = word >> 6 & 0x7F, high >> 25
    field = high & 0xFFFFFF
    offset = field - (field >> 23 << 24)
    if "unsigned" in row.flags and offset < 0:
        return None
    operands: list[Operand | None] = []
    shown = f"{offset:#x}"
    prefetch = "prefetch" in row.flags
    modifiers: tuple[Modifier, ...] = ()
    for operand in row.operands:
        if operand[0] == "d":
            operands.append(scalar(register, int(operand[1:])))
        elif operand[0] == "i":
            operands.append(immediate(register, small(register)))
        elif operand[0] == "b":
            operands.append(scalar((word & 0x3F) << 1, int(operand[1:])))
    if high >> 24 & 1:
        modifiers = (SCALE_OFFSET,)
    if prefetch:
        operands += [immediate(offset, shown), scalar(soffset, 1), immediate(register, small(register))]
    elif soffset == _NULL:
        operands.append(immediate(offset, shown))
    else:
        operands.append(scalar(soffset, 1))
        modifiers = (Modifier("offset", f"offset:{shown}", offset), *modifiers)
    modifiers += policies
    if word >> 20 & 1:
        modifiers += (NON_VOLATILE,)
    found = tuple(operand for operand in operands if operand is not None)
    if len(found) < len(operands):
        return None
    return Instruction("SMEM", opcode, row.mnemonic, found, modifiers, 8, (word, high))
