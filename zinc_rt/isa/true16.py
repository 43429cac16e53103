"""Which reading of 16-bit operands (Target.true16) code needs, where none was asked for.

The hardware reads and writes halves of registers. LLVM has a model of them (real true16) and an older model with
whole registers (fake true16), and prints each differently. A code object does not record which one its compiler
used: no ELF flag, no metadata and no feature of the target id differs. Code of the older model never names an
upper half in a short encoding, so one instruction that does decides the reading of its kernel or object.
"""

from __future__ import annotations

from collections.abc import Iterable

from zinc_rt.isa.decoder import decode, decode_stream
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.target import Target

_OP_SEL = 15 << 11  # of VOP3


def is_true16_supported(target: Target) -> bool:
    """Return whether the target's reading is fixed: it was requested, or its default names every half."""
    return target.true16 is not None or target.has_halves


def needs_halves(code: bytes, index: int, instruction: Instruction | None, target: Target) -> bool:
    """Return whether an instruction names an upper half. The instruction was decoded at `index` with whole
    registers.
    """
    if instruction is None:
        return index >= 0 and decode(code, index, target.with_true16("real")) is not None
    flags = instruction.row.flags
    if "halves" not in flags:
        return False
    if instruction.row.encoding == "VOP3":
        return bool(instruction.words[0] & _OP_SEL) and instruction.modifier("op_sel") is None
    return any("Lo128" in operand.text for operand in instruction.operands)


def find_reading_of_sections(sections: Iterable[bytes], target: Target) -> Target:
    """Return the target with the reading that an object needs, from the code of its sections."""
    if is_true16_supported(target):
        return target
    for code in sections:
        for item in decode_stream(code, target):
            if needs_halves(code, item.at, item.instruction, target):
                return target.with_true16("real")
    return target
