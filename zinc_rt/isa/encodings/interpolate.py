"""VINTERP and VDSDIR: a pixel shader's parameters. Compute shaders have none."""

from __future__ import annotations

from zinc_rt.isa.encodings.kinds import decoder
from zinc_rt.isa.encodings.source import LITERAL
from zinc_rt.isa.encodings.vector import CLAMP, bits_modifier
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import modified, name, vgpr
from zinc_rt.isa.target import Target

_VINTERP = (
    "v_interp_p10_f32", "v_interp_p2_f32", "v_interp_p10_f16_f32", "v_interp_p2_f16_f32",
    "v_interp_p10_rtz_f16_f32", "v_interp_p2_rtz_f16_f32",
)  # fmt: skip
_HAS_OP_SEL = range(2, 6)


def decode(word: int, code: bytes, at: int, target: Target) -> Instruction | None:
    prefix = word >> 24
    if prefix == 0xCD:
        return _interpolate(word, code, at, target)
    return _direct(word) if prefix == 0xCE else None


def _interpolate(word: int, code: bytes, at: int, target: Target) -> Instruction | None:
    opcode = word >> 16 & 0x1F
    if opcode >= len(_VINTERP) or at + 8 > len(code):
        return None
    high = int.from_bytes(code[at + 4 : at + 8], "little")
    operands = [vgpr(word & 0xFF)]
    words: tuple[int, ...] = (word, high)
    literal = 0
    sources = [high >> 9 * i & 0x1FF for i in range(3)]
    if LITERAL in sources:
        if at + 12 > len(code):
            return None
        literal = int.from_bytes(code[at + 8 : at + 12], "little")
        words = (word, high, literal)
    decode_source = decoder("V1", target)
    for i, field in enumerate(sources):
        operand = decode_source(field, literal)
        if operand is None:
            return None
        operands.append(modified(operand, True, False) if high >> 29 + i & 1 else operand)
    modifiers: list[Modifier] = []
    if word >> 15 & 1:
        modifiers.append(CLAMP)
    select = tuple(word >> 11 + i & 1 for i in range(4))
    if any(select) and opcode in _HAS_OP_SEL:
        modifiers.append(bits_modifier("op_sel", select))
    wait = word >> 8 & 7
    modifiers.append(Modifier("wait_exp", f"wait_exp:{wait}", wait))
    return Instruction(
        "VINTERP", opcode, _VINTERP[opcode], tuple(operands), tuple(modifiers), 4 * len(words), words
    )


def _direct(word: int) -> Instruction | None:
    opcode = word >> 20 & 7
    if opcode > 1:
        return None
    attribute = word >> 10 & 0x3F
    operands = [vgpr(word & 0xFF)]
    if not opcode:
        operands.append(name(f"attr{attribute}.{'xyzw'[word >> 8 & 3]}", word >> 8 & 0xFF))
    vdst, vsrc = word >> 16 & 15, word >> 23 & 1
    modifiers = (
        Modifier("wait_va_vdst", f"wait_va_vdst:{vdst}", vdst),
        Modifier("wait_vm_vsrc", f"wait_vm_vsrc:{vsrc}", vsrc),
    )
    mnemonic = "ds_direct_load" if opcode else "ds_param_load"
    return Instruction("VDSDIR", opcode, mnemonic, tuple(operands), modifiers, 4, (word,))
