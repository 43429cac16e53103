"""SMEM, FLAT, GLOBAL and SCRATCH of gfx11: two dwords. Rows are those of scalar_memory.py and flat.py."""

from __future__ import annotations

from functools import cache

from zinc_rt.isa.encodings.flat import make_flat_operands, make_offset
from zinc_rt.isa.encodings.scalar_memory import make_data_and_base
from zinc_rt.isa.encodings.source import make_scalar
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import make_immediate
from zinc_rt.isa.rows import make_rows
from zinc_rt.isa.target import Target

_NULL = 124
_SEGMENTS = ("FLAT", "SCRATCH", "GLOBAL")
_DLC, _GLC, _SLC = 1, 2, 4


@cache
def decode_cache_bits(bits: int) -> tuple[Modifier, ...]:
    named = ((_GLC, "glc"), (_SLC, "slc"), (_DLC, "dlc"))
    return tuple(Modifier(text, text, 1) for bit, text in named if bits & bit)


def decode_scalar(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    row = make_rows("memory", "SMEM", target.generation).get(word >> 18 & 0xFF)
    if row is None or index + 8 > len(code):
        return None
    high = int.from_bytes(code[index + 4 : index + 8], "little")
    if (not row.operands or "probe" in row.flags) and word >> 13 & 3:
        return None
    if not row.operands:
        return Instruction(row, (), (), (word, high))
    register, soffset, field = word >> 6 & 0x7F, high >> 25, high & 0x1FFFFF
    distance = field - (field >> 20 << 21)
    operands = make_data_and_base(row, register, word)
    modifiers: tuple[Modifier, ...] = ()
    if soffset == _NULL and distance:
        operands.append(make_immediate(distance, f"{distance:#x}"))
    else:
        operands.append(make_scalar(soffset, 1))
        if distance:
            modifiers = (Modifier("offset", f"offset:{distance:#x}", distance),)
    result = tuple(operand for operand in operands if operand is not None)
    if len(result) < len(operands):
        return None
    if "probe" not in row.flags:
        modifiers += decode_cache_bits(word >> 13 & 3)
    return Instruction(row, result, modifiers, (word, high))


def decode_flat(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    segment = word >> 16 & 3
    if segment == 3 or index + 8 > len(code):
        return None
    encoding, opcode = _SEGMENTS[segment], word >> 18 & 0x7F
    row = make_rows("memory", encoding, target.generation).get(opcode)
    if row is None:
        return None
    high = int.from_bytes(code[index + 4 : index + 8], "little")
    saddr, used = high >> 16 & 0x7F, high >> 23 & 1
    if used and encoding != "SCRATCH":
        return None
    bits = word >> 13 & 7
    registers = (high >> 24, high >> 8 & 0xFF, high & 0xFF, saddr)
    operands = make_flat_operands(row, registers, target, offset_used=bool(used), returns=bool(bits & _GLC))
    if operands is None:
        return None
    field = word & 0x1FFF
    if encoding == "FLAT":
        modifiers: tuple[Modifier, ...] = (Modifier("offset", f"offset:{field}", field),) if field else ()
    else:
        modifiers = make_offset(field, 13)
    modifiers += decode_cache_bits(bits)
    return Instruction(row, operands, modifiers, (word, high))
