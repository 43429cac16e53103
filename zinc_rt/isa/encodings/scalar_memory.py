"""SMEM of gfx12: scalar loads, prefetches and cache control, two dwords.

Operands of a row: `d` for the loaded dwords, or `i` for that field as a number; `b` for the base, 2 or 4 dwords.
Flags: `unsigned` if the offset must not be negative; `probe` if nothing is loaded; `prefetch` if, in addition, the
offset and the number come last.
"""

from __future__ import annotations

from zinc_rt.isa.encodings.cache_policy import SCALE_OFFSET, format_policy
from zinc_rt.isa.encodings.immediates import format_small
from zinc_rt.isa.encodings.source import make_scalar
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import Operand, make_immediate
from zinc_rt.isa.rows import InstructionRow, make_rows
from zinc_rt.isa.target import Target

_NULL = 124


def decode(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    row = make_rows("memory", "SMEM", target.generation).get(word >> 13 & 0x3F)
    if row is None or index + 8 > len(code):
        return None
    high = int.from_bytes(code[index + 4 : index + 8], "little")
    if not row.operands:
        return Instruction(row, (), (), (word, high))
    register, soffset = word >> 6 & 0x7F, high >> 25
    field = high & 0xFFFFFF
    offset = field - (field >> 23 << 24)
    probe = "probe" in row.flags  # prefetches too: the register field is a 5-bit number
    if (offset < 0 and "unsigned" in row.flags) or (probe and register > 31):
        return None
    operands = make_data_and_base(row, register, word)
    shown = f"{offset:#x}"
    modifiers: tuple[Modifier, ...] = ()
    if high >> 24 & 1 and not probe:
        modifiers = (SCALE_OFFSET,)
    if "prefetch" in row.flags:
        operands += [
            make_immediate(offset, shown),
            make_scalar(soffset, 1),
            make_immediate(register, format_small(register)),
        ]
    elif soffset == _NULL:
        operands.append(make_immediate(offset, shown))
    else:
        operands.append(make_scalar(soffset, 1))
        modifiers = (Modifier("offset", f"offset:{shown}", offset), *modifiers)
    if not probe:
        modifiers += format_policy("load", word >> 23 & 3, word >> 21 & 3, word >> 20 & 1)
    result = tuple(operand for operand in operands if operand is not None)
    if len(result) < len(operands):
        return None
    return Instruction(row, result, modifiers, (word, high))


def make_data_and_base(row: InstructionRow, register: int, word: int) -> list[Operand | None]:
    operands: list[Operand | None] = []
    for operand in row.operands:
        if operand[0] == "d":
            operands.append(_make_destination(register, int(operand[1:])))
        elif operand[0] == "i":
            operands.append(make_immediate(register, format_small(register)))
        elif operand[0] == "b":
            operands.append(make_scalar((word & 0x3F) << 1, int(operand[1:])))
    return operands


def _make_destination(register: int, width: int) -> Operand | None:
    if width == 1:
        return make_scalar(register, 1, "SReg_32_XM0_XEXEC" if register in (125, 126, 127) else "")
    if width == 2:
        return make_scalar(register, 2, "SReg_64_XEXEC" if register == 126 else "")
    if width == 3 and 108 <= register < 124:  # there are no tuples of this size; LLVM uses one of eight registers
        return make_scalar(register, 8, "SReg_96")
    return make_scalar(register, width)
