"""EXP: exports of the graphics pipeline, two dwords. Compute shaders have none."""

from __future__ import annotations

from zinc_rt.isa.encodings.flat import OFF
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import name, vgpr
from zinc_rt.isa.target import Target

_TARGETS = {8: "mrtz", 20: "prim", 21: "dual_src_blend0", 22: "dual_src_blend1"}
_TARGETS |= {i: f"mrt{i}" for i in range(8)} | {12 + i: f"pos{i}" for i in range(5)}
_DONE, _ROW = Modifier("done", "done", 1), Modifier("row_en", "row_en", 1)
_MNEMONICS = {12: "export", 11: "exp"}


def decode(word: int, code: bytes, at: int, target: Target) -> Instruction | None:
    if at + 8 > len(code):
        return None
    high = int.from_bytes(code[at + 4 : at + 8], "little")
    number = word >> 4 & 0x3F
    operands = [name(_TARGETS.get(number, f"invalid_target_{number}"), number)]
    operands += [vgpr(high >> 8 * i & 0xFF) if word >> i & 1 else OFF for i in range(4)]
    modifiers = (_DONE,) * (word >> 11 & 1) + (_ROW,) * (word >> 13 & 1)
    return Instruction("EXP", 0, _MNEMONICS[target.generation], tuple(operands), modifiers, 8, (word, high))
