"""Modules with one thing changed, for tests that want it found."""

from __future__ import annotations

from collections.abc import Callable

from zinc_rt.spirv.module import SpirvInstruction, encode_words, read_module
from zinc_rt.spirv.opcodes import Opcode

Words = tuple[int, ...]


def encode_instruction(opcode: int, *operands: int) -> Words:
    return ((1 + len(operands)) << 16 | opcode, *operands)


def edit_module(data: bytes, change: Callable[[SpirvInstruction], Words | None]) -> bytes:
    """`change` gives the words that stand for an instruction; None: its own."""
    module = read_module(data)
    words = list(module.words[:5])
    for instruction in module.instructions:
        own = module.words[instruction.at : instruction.at + 1 + len(instruction.operands)]
        new = change(instruction)
        words += own if new is None else new
    return encode_words(words)


def replace_first(
    opcode: int, new: Callable[[SpirvInstruction], Words]
) -> Callable[[SpirvInstruction], Words | None]:
    """Return an edit of the first instruction with an opcode."""
    result = []

    def change_instruction(instruction: SpirvInstruction) -> Words | None:
        if instruction.opcode != opcode or result:
            return None
        result.append(instruction)
        return new(instruction)

    return change_instruction


def insert_before(opcode: int, *words: int) -> Callable[[SpirvInstruction], Words | None]:
    """Insert words before the first instruction with an opcode."""
    return replace_first(opcode, lambda item: (*words, *encode_instruction(item.opcode, *item.operands)))


def remove_instruction(opcode: int, *operands: int) -> Callable[[SpirvInstruction], Words | None]:
    """Remove the instructions with an opcode whose last operands are these."""

    def change_instruction(instruction: SpirvInstruction) -> Words | None:
        return () if instruction.opcode == opcode and instruction.operands[-len(operands) :] == operands else None

    return change_instruction


def float_constant(data: bytes, bits: int) -> tuple[int, bytes]:
    """Return the id of a float constant, and the module that contains it."""
    module = read_module(data)
    real = next(item.operands[0] for item in module.of(Opcode.TypeFloat))
    bound = module.words[3]
    added = edit_module(
        data, insert_before(Opcode.Function, *encode_instruction(Opcode.Constant, real, bound, bits))
    )
    words = list(read_module(added).words)
    words[3] = bound + 1
    return bound, encode_words(words)
