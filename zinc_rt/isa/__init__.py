"""gfx11 and gfx12 machine code: decoder and disassembler.

target = target_of("gfx1201", wave=32)
instruction = decode(code, 0, target)      # an Instruction, or None where LLVM decodes none either
print(instruction.text)

The names below are imported on first use, because many modules need isa.target without decoding anything.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zinc_rt.isa.decoder import CodeItem, decode, decode_stream
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
_MODULES = {
    "decoder": ("CodeItem", "decode", "decode_stream"),
    "instruction": ("Instruction", "Modifier"),
    "operand": ("Kind", "Operand"),
    "target": ("Target", "target_of"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
            return value
    raise AttributeError(f"module {__name__} has no attribute {name}")
