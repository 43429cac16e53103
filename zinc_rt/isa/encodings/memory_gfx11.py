"""SMEM, FLAT, GLOBAL and SCRATCH of gfx11: two dwords. Rows are those of scalar_memory.py and flat.py."""

from __future__ import annotations

from functools import cache

from zinc_rt.isa.encodings.flat import OFF, offset, scalar_address
from zinc_rt.isa.encodings.immediates import small
from zinc_rt.isa.encodings.scalar_memory import destination
from zinc_rt.isa.encodings.source import scalar
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import Operand, immediate, vgpr
from zinc_rt.isa.rows import rows
from zinc_rt.isa.target import Target

_NULL = 124
_SEGMENTS = ("FLAT", "SCRATCH", "GLOBAL")
_DLC, _GLC, _SLC = 1, 2, 4


@cache
def caches(bits: int) -> tuple[Modifier, ...]:
    named = ((_GLC, "glc"), (_SLC, "slc"), (_DLC, "dlc"))
    return tuple(Modifier(text, text, 1) for bit, text in named if bits & bit)


def decode_scalar(word: int, code: bytes, at: int, target: Target) -> Instruction | None:
    row = rows("memory", "SMEM", target.generation).get(word >> 18 & 0xFF)
    if row is None or at + 8 > len(code):
        return None
    high = int.from_bytes(code[at + 4 : at + 8], "little")
    if (not row.operands or "probe" in row.flags) and word >> 13 & 3:
        return None
    if not row.operands:
        return Instruction(row, (), (), (word, high))
    register, soffset, field = word >> 6 & 0x7F, high >> 25, high & 0x1FFFFF
    distance = field - (field >> 20 << 21)
    operands: list[Operand | None] = []
    for operand in row.operands:
        if operand[0] == "d":
            operands.append(destination(register, int(operand[1:])))
        elif operand[0] == "i":
            operands.append(immediate(register, small(register)))
        else:
            operands.append(scalar((word & 0x3F) << 1, int(operand[1:])))
    modifiers: tuple[Modifier, ...] = ()
    if soffset == _NULL and distance:
        operands.append(immediate(distance, f"{distance:#x}"))
    else:
        operands.append(scalar(soffset, 1))
        if distance:
            modifiers = (Modifier("offset", f"offset:{distance:#x}", distance),)
    found = tuple(operand for operand in operands if operand is not None)
    if len(found) < len(operands):
        return None
    if "probe" not in row.flags:
        modifiers += caches(word >> 13 & 3)
    return Instruction(row, found, modifiers, (word, high))


def decode_flat(word: int, code: bytes, at: int, target: Target) -> Instruction | None:
    segment = word >> 16 & 3
    if segment == 3 or at + 8 > len(code):
        return None
    encoding, opcode = _SEGMENTS[segment], word >> 18 & 0x7F
    row = rows("memory", encoding, target.generation).get(opcode)
    if row is None:
        return None
    high = int.from_bytes(code[at + 4 : at + 8], "little")
    saddr, used = high >> 16 & 0x7F, high >> 23 & 1
    if used and encoding != "SCRATCH":
        return None
    address = scalar_address(encoding, saddr, row)
    if address is None:
        return None
    data = {o[0]: vgpr(high >> (24 if o[0] == "d" else 8) & 0xFF, int(o[1:].split("/")[0])) for o in row.operands}
    bits = word >> 13 & 7
    operands = [data["d"]] if "d" in data and (row.flags[0] != "atomic" or bits & _GLC) else []
    if "addtid" not in row.flags:
        register = high & 0xFF
        if encoding == "SCRATCH":
            operands.append(vgpr(register) if used else OFF)
        else:
            operands.append(vgpr(register, 2 if saddr == _NULL else 1))
    if "x" in data:
        operands.append(data["x"])
    if encoding != "FLAT":
        operands.append(address)
    field = word & 0x1FFF
    if encoding == "FLAT":
        modifiers: tuple[Modifier, ...] = (Modifier("offset", f"offset:{field}", field),) if field else ()
    else:
        modifiers = offset(field, 13)
    modifiers += caches(bits)
    return Instruction(row, tuple(operands), modifiers, (word, high))
