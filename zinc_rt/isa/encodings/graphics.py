"""VINTERP, VDSDIR (gfx12), LDSDIR (gfx11) and EXP: parameters of a pixel shader, and exports.

Compute shaders use none of them.

Flags of a row: `sel` if op_sel is shown; `h5` for the operands that it selects halves of, a bit each: the sources,
then the destination.
"""

from __future__ import annotations

from zinc_rt.isa.encodings.flat import OFF
from zinc_rt.isa.encodings.kinds import make_decoder
from zinc_rt.isa.encodings.source import LITERAL
from zinc_rt.isa.encodings.vector import CLAMP, make_bits_modifier
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import Kind, add_modifiers, make_half, make_vgpr, name
from zinc_rt.isa.rows import make_rows
from zinc_rt.isa.target import Target

_TARGETS = {8: "mrtz", 20: "prim", 21: "dual_src_blend0", 22: "dual_src_blend1"}
_TARGETS |= {i: f"mrt{i}" for i in range(8)} | {12 + i: f"pos{i}" for i in range(5)}
_DONE, _ROW = Modifier("done", "done", 1), Modifier("row_en", "row_en", 1)


def decode_parameters(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    prefix = word >> 24
    if prefix == 0xCD:
        return _decode_interpolate(word, code, index, target)
    return _decode_direct(word, target) if prefix == 0xCE else None


def _decode_interpolate(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    row = make_rows("graphics", "VINTERP", target.generation).get(word >> 16 & 0x1F)
    if row is None or index + 8 > len(code):
        return None
    high = int.from_bytes(code[index + 4 : index + 8], "little")
    halves = row.mask("h") if target.has_halves else 0
    operands = [make_half(word & 0xFF, word >> 14 & 1) if halves & 8 else make_vgpr(word & 0xFF)]
    words: tuple[int, ...] = (word, high)
    literal = 0
    sources = [high >> 9 * i & 0x1FF for i in range(3)]
    if LITERAL in sources:
        if index + 12 > len(code):
            return None
        literal = int.from_bytes(code[index + 8 : index + 12], "little")
        words = (word, high, literal)
    decode_source = make_decoder("V1", target)
    for i, field in enumerate(sources):
        operand = decode_source(field, literal)
        if operand is None:
            return None
        if halves >> i & 1 and operand.kind is Kind.VGPR:
            operand = make_half(operand.index, word >> 11 + i & 1)
        operands.append(add_modifiers(operand, True, False) if high >> 29 + i & 1 else operand)
    modifiers: list[Modifier] = []
    if word >> 15 & 1:
        modifiers.append(CLAMP)
    select = tuple(word >> 11 + i & 1 for i in range(4))
    if any(select) and "sel" in row.flags:
        modifiers.append(make_bits_modifier("op_sel", select))
    wait = word >> 8 & 7
    modifiers.append(Modifier("wait_exp", f"wait_exp:{wait}", wait))
    return Instruction(row, tuple(operands), tuple(modifiers), words)


def _decode_direct(word: int, target: Target) -> Instruction | None:
    is_gfx12 = target.generation == 12
    rows = make_rows("graphics", "VDSDIR" if is_gfx12 else "LDSDIR", target.generation)
    row = rows.get(word >> 20 & (7 if is_gfx12 else 15))
    if row is None:
        return None
    attribute = word >> 10 & 0x3F
    operands = [make_vgpr(word & 0xFF)]
    if row.opcode == 0:
        operands.append(name(f"attr{attribute}.{'xyzw'[word >> 8 & 3]}", word >> 8 & 0xFF))
    vdst, vsrc = word >> 16 & 15, word >> 23 & 1
    if not is_gfx12:
        return Instruction(row, tuple(operands), (Modifier("wait_vdst", f"wait_vdst:{vdst}", vdst),), (word,))
    modifiers = (
        Modifier("wait_va_vdst", f"wait_va_vdst:{vdst}", vdst),
        Modifier("wait_vm_vsrc", f"wait_vm_vsrc:{vsrc}", vsrc),
    )
    return Instruction(row, tuple(operands), modifiers, (word,))


def decode_export(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    if index + 8 > len(code):
        return None
    high = int.from_bytes(code[index + 4 : index + 8], "little")
    number = word >> 4 & 0x3F
    operands = [name(_TARGETS.get(number, f"invalid_target_{number}"), number)]
    operands += [make_vgpr(high >> 8 * i & 0xFF) if word >> i & 1 else OFF for i in range(4)]
    modifiers = (_DONE,) * (word >> 11 & 1) + (_ROW,) * (word >> 13 & 1)
    return Instruction(
        make_rows("graphics", "EXP", target.generation)[0], tuple(operands), modifiers, (word, high)
    )
