"""gfx11 and gfx12 machine code: decoder and disassembler.

target = target_of("gfx1201", wave=32)
instruction = decode(code, 0, target)      # an Instruction, or None where LLVM decodes none either
print(instruction.text)
"""

from zinc_rt.isa.decode import CodeItem, decode, decode_stream
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import Kind, Operand
from zinc_rt.isa.target import Target, target_of

__all__ = [
    "CodeItem",
    "Instruction",
    "Kind",
    "Modifier",
    "Operand",
    "Target",
    "decode",
    "decode_stream",
    "target_of",
]
